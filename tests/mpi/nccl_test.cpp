// What is NCCL's own: how it begins and ends, and that nothing is asked of it that its documents refuse. The suite of
// all transports (kind Nccl) shows the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "core/base/error.h"
#include "parallel/comm/device_comm.h"
#include "tests/mpi/nccl_fixture.h"
#include "tests/mpi/operands.h"

namespace ashlar::testing {
namespace {

using comm::ReduceOp;
using comm::Work;
using Nccl = NcclFixture;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Nccl, SaysWhichLibraryItIs) {
  EXPECT_THAT(make()->description(), AllOf(HasSubstr("NCCL 2."), HasSubstr(stand_in_nccl())));
}

TEST_F(Nccl, AMissingLibraryIsOneErrorOfAll) {
  Error error(ExitCode::kDone, "", "");
  {
    const Variable missing("ASHLAR_NCCL", "/nowhere/libnccl.so.2");
    error = error_of([&] { comm::NcclComm::make(*host_, bootstrap().control(), device_, {}); });
  }
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("libnccl2")));
}

TEST_F(Nccl, RanksThatDoNotMeetEndInTime) {
  const Variable fault("ASHLAR_STAND_IN_NCCL_FAULT", "never meets");
  const auto begin = std::chrono::steady_clock::now();
  const Error error = error_of([&] { make({.setup_seconds = 0.3}); });
  EXPECT_EQ(error.code(), ExitCode::kPeerLost);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("world is still in progress after 0.3 s"), HasSubstr("NCCL_SOCKET_IFNAME")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// What goes wrong on the device's side shows in the next round of progress, whatever the host is doing.
TEST_F(Nccl, AnAsynchronousErrorIsFoundByProgress) {
  const auto comm = make();
  Buffer<float> x(10, rank_);
  bool held = true;
  device_.gpu().queue_step(
      "held up", [&] { return !held; }, *stream_);
  sum(*comm, x).wait(*stream_);
  comm->progress();
  {
    const Variable fault("ASHLAR_STAND_IN_NCCL_FAULT", "remote error");
    const Error error = error_of([&] { comm->progress(); });
    EXPECT_EQ(error.code(), ExitCode::kPeerLost);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("world failed: remote process exited"), HasSubstr("a rank is gone")));
  }
  comm->abort_function()();
  held = false;
  stream_->synchronize();
}

// The library is not called again, or it would complain (a Bug).
TEST_F(Nccl, NothingCallsItAfterTheAbort) {
  const auto comm = make();
  const auto part = comm->split({.color = 0, .key = rank_, .name = "part"});
  Buffer<float> x(10, rank_);
  sum(*part, x).wait();
  const std::function<void()> abort = comm->abort_function();
  abort();
  abort();
  EXPECT_THAT(error_of([&] { sum(*part, x).wait(); }).what(), HasSubstr("after communication was aborted"));
  EXPECT_EQ(error_of([&] { sum(*comm, x).wait(); }).code(), ExitCode::kPeerLost);
}

// Work that nothing orders behind an operation, or before it, is found by the device of the tests.
TEST_F(Nccl, WaitsForTheCallersStreamAndIsWaitedFor) {
  const auto comm = make();
  Allocator& memory = device_.allocator(MemoryKind::kGradients);
  const auto vector = [&] { return MutView{memory.allocate(4000), DType::kFloat32, 1, 1000, 1000}; };
  const MutView x = vector(), y = vector();
  for (int round = 0; round < 5; ++round) {
    device_.fill({.dst = x, .value = 1.0}, *stream_);
    comm->all_reduce({.in = x, .out = y, .op = ReduceOp::kSum}, *stream_).wait(*stream_);
    device_.fill({.dst = x, .value = 2.0}, *stream_);
    std::vector<float> host(1000);
    device_.read(y, host.data(), *stream_);
    EXPECT_THAT(host, ::testing::Each(static_cast<float>(ranks_)));
  }
  memory.release(x.data);
  memory.release(y.data);
}

TEST_F(Nccl, NobodyWaitsForTheHostInASteadyStep) {
  const auto comm = make();
  Buffer<float> x(1000, rank_), y(500);
  sum(*comm, x).wait(*stream_);
  device_.forget_host_waits();
  for (int step = 0; step < 3; ++step) {
    sum(*comm, x).wait(*stream_);
    comm->send_recv({.send = x.view(0, 500),
                     .to = (rank_ + 1) % ranks_,
                     .recv = y.view(),
                     .from = (rank_ + ranks_ - 1) % ranks_},
                    *stream_)
        .wait(*stream_);
  }
  EXPECT_THAT(device_.host_waits(), ::testing::IsEmpty());
  stream_->synchronize();
}

// Ranks that hand operations of two communicators to their devices in different orders wait for ever.
TEST_F(Nccl, OperationsOfAllCommunicatorsBeginInTheOrderOfIssue) {
  const auto comm = make();
  const auto other = comm->split({.color = 0, .key = -rank_, .name = "other"});
  std::deque<Buffer<float>> buffers;
  std::vector<Work> works;
  for (int i = 0; i < 30; ++i) {
    buffers.emplace_back(100 + i, rank_, i);
    works.push_back(sum(i % 3 == 0 ? *comm : *other, buffers.back()));
  }
  for (size_t i = works.size(); i > 0; --i) works[i - 1].wait();
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(buffers[static_cast<size_t>(i)].wrong_sums(comm::sums_of(*comm), ranks_, i), 0) << i;
}

TEST_F(Nccl, ASendRecvWithOneSideToOneselfIsABug) {
  const auto comm = make();
  if (ranks_ < 2) return;
  Buffer<float> x(4), y(4);
  EXPECT_THROW(
      comm->send_recv({.send = x.view(), .to = rank_, .recv = y.view(), .from = (rank_ + 1) % ranks_}, *stream_).wait(),
      Bug);
}

// Whoever comes second makes the calls, behind what both streams were given before.
TEST_F(Nccl, AMessageToOneselfIsBehindBothItsStreams) {
  const auto comm = make();
  const std::unique_ptr<Stream> other = device_.make_stream();
  Allocator& memory = device_.allocator(MemoryKind::kGradients);
  const auto vector = [&] { return MutView{memory.allocate(4000), DType::kFloat32, 1, 1000, 1000}; };
  const MutView x = vector(), y = vector();
  for (const bool sends_first : {true, false}) {
    device_.fill({.dst = x, .value = 1.0}, *stream_);
    device_.fill({.dst = y, .value = 2.0}, *other);
    Work first =
        sends_first ? comm->send({.data = x, .to = rank_}, *stream_) : comm->recv({.data = y, .from = rank_}, *other);
    Work second =
        sends_first ? comm->recv({.data = y, .from = rank_}, *other) : comm->send({.data = x, .to = rank_}, *stream_);
    first.wait();
    second.wait();
    std::vector<float> host(1000);
    device_.read(y, host.data(), *other);
    EXPECT_THAT(host, ::testing::Each(1.0F));
  }
  memory.release(x.data);
  memory.release(y.data);
}

// What a run's device asks for.
TEST_F(Nccl, IsTakenForCudaOnSeveralRanks) {
  setenv("ASHLAR_NCCL", stand_in_nccl().c_str(), 0);
  take_work_of_stand_ins(device_.gpu());
  Log log([](std::string_view) {});
  const auto take = [&](bool cuda) {
    return comm::make_device_comm({.host = *host_,
                                   .control = bootstrap().control(),
                                   .backend = device_,
                                   .log = log,
                                   .cuda = cuda,
                                   .deterministic = false});
  };
  {
    const comm::DeviceComm nccl = take(true);
    EXPECT_EQ(comm::sums_of(*nccl.all), comm::Sums::kBounded);
    EXPECT_TRUE(nccl.abort);
  }
  const comm::DeviceComm staged = take(false);
  EXPECT_EQ(comm::sums_of(*staged.all), comm::Sums::kRankOrder);
  EXPECT_FALSE(staged.abort);
  const Variable missing("ASHLAR_NCCL", "/nowhere/libnccl.so.2");
  EXPECT_EQ(error_of([&] { take(true); }).code(), ExitCode::kInput) << "a library that is named must be there";
  EXPECT_THAT(log.warnings(), ::testing::IsEmpty());
}

TEST(NcclEnvironment, PinsWhatTheUserHasNotSet) {
  const char* const names[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_WIN_ENABLE"};
  for (const char* name : names) unsetenv(name);
  comm::set_nccl_environment(false);
  for (const char* name : names) EXPECT_EQ(std::getenv(name), nullptr) << name;
  comm::set_nccl_environment(true);
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "Simple");
  for (const char* name : {"NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_WIN_ENABLE"})
    EXPECT_STREQ(std::getenv(name), "0") << name;
  setenv("NCCL_PROTO", "LL128", 1);
  comm::set_nccl_environment(true);
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "LL128");
  for (const char* name : names) unsetenv(name);
}

}  // namespace
}  // namespace ashlar::testing
