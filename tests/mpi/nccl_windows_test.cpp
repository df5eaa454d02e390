// Buffers in windows of symmetric memory: where they can be, that sums stay right, and what is said where they cannot.
#include "parallel/comm/nccl_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/comm/device_comm.h"
#include "tests/mpi/nccl_fixture.h"

namespace ashlar::testing {
namespace {

using comm::ReduceOp;
using comm::WindowOffer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kElements = 3000, kPage = 4096;

TEST(NcclWindowProblem, NamesTheFirstRankThatCannot) {
  const WindowOffer good{.bytes = 8192, .beyond = 0, .supported = 1};
  EXPECT_EQ(comm::window_problem(std::array{good}), "");
  EXPECT_EQ(comm::window_problem(std::array{good, good, good}), "");
  WindowOffer other = good;
  other.supported = 0;
  EXPECT_EQ(comm::window_problem(std::array{good, other}), "expected NCCL 2.27 or later, got an older one on rank 1");
  other = good;
  other.bytes = 4096;
  EXPECT_EQ(comm::window_problem(std::array{good, good, other}),
            "expected buffers of one size on all ranks, got 8192 bytes on rank 0 and 4096 on rank 2");
  other = good;
  other.beyond = 256;
  EXPECT_EQ(comm::window_problem(std::array{other, good}),
            "expected a buffer that begins at a multiple of 4096 bytes, got one 256 bytes past a multiple on rank 0");
  other.bytes = other.beyond = 0;
  EXPECT_EQ(comm::window_problem(std::array{other, other}), "expected a buffer, got none");
}

class NcclWindows : public NcclFixture {
 protected:
  NcclWindows() { unsetenv("NCCL_WIN_ENABLE"); }  // of deterministic communicators before
  std::unique_ptr<comm::NcclComm> make_windowed(bool deterministic = false) {
    return make({.deterministic = deterministic, .setup_seconds = 30, .log = &log_});
  }
  void TearDown() override {  // when no window is left
    for (const auto& [source, memory] : taken_) source->release(memory);
  }
  void* take(const comm::NcclComm& on, int64_t bytes) {
    const std::shared_ptr<MemorySource> source = on.memory_for_windows();
    return taken_.emplace_back(source, source->allocate(bytes)).second;
  }
  static MutView view(void* at, int64_t elements = kElements) { return {at, DType::kFloat32, 1, elements, elements}; }
  /// The sum over the ranks of a buffer that each fills with its rank + 1.
  void expect_sum(comm::Communicator& on, const MutView& x) {
    device_.fill({.dst = x, .value = 1.0 + rank_}, *stream_);
    on.all_reduce({.in = x, .out = x, .op = ReduceOp::kSum}, *stream_).wait(*stream_);
    std::vector<float> host(static_cast<size_t>(x.size()));
    device_.read(x, host.data(), *stream_);
    EXPECT_THAT(host, ::testing::Each(static_cast<float>(ranks_ * (ranks_ + 1) / 2)));
  }
  void expect_none(comm::NcclComm& on, const MutView& buffer, const std::string& reason) {
    EXPECT_FALSE(comm::make_window(on, buffer));
    EXPECT_FALSE(comm::make_window(on, buffer)) << "said once";
    EXPECT_THAT(
        lines_,
        ElementsAre(AllOf(HasSubstr("collectives over world copy through NCCL's buffers, without symmetric windows: "),
                          HasSubstr(reason))));
    expect_sum(on, buffer);
  }

  std::vector<std::pair<std::shared_ptr<MemorySource>, void*>> taken_;
  std::vector<std::string> lines_;
  Log log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(NcclWindows, AreGivenUpBeforeTheEnd) {
  auto comm = make_windowed();
  EXPECT_TRUE(comm::make_window(*comm, view(take(*comm, kElements * 4))));
  EXPECT_TRUE(comm::make_window(*comm, view(take(*comm, kElements * 4))));
  comm.reset();
  EXPECT_THAT(lines_, IsEmpty()) << "NCCL ended in peace";
}

TEST_F(NcclWindows, HoldBuffersOfAllRanks) {
  const auto comm = make_windowed();
  void *const a = take(*comm, 2 * kPage * 4), *const b = take(*comm, kElements * 4);
  EXPECT_TRUE(comm::make_window(*comm, view(a, 2 * kPage)));
  EXPECT_TRUE(comm::make_window(*comm, view(b)));
  expect_sum(*comm, view(a));
  expect_sum(*comm, view(b));
  const auto part = comm->split({.color = 0, .key = -rank_, .name = "part"});
  EXPECT_TRUE(comm::make_window(*part, view(b))) << "a communicator has its own";
  expect_sum(*part, view(b));
  EXPECT_THAT(lines_, IsEmpty());
  // Gathers and scatters, whose parts lie at other places of the whole on each rank.
  const int64_t n = 100;
  const MutView whole = view(a, n * ranks_);
  const MutView own = view(static_cast<float*>(a) + n * rank_, n);
  device_.fill({.dst = own, .value = 1.0 * rank_}, *stream_);
  comm->all_gather({.in = own, .out = whole, .parts = {}}, *stream_).wait(*stream_);
  comm->reduce_scatter({.in = whole, .out = own, .parts = {}}, *stream_).wait(*stream_);
  std::vector<float> host(static_cast<size_t>(n));
  device_.read(own, host.data(), *stream_);
  EXPECT_THAT(host, ::testing::Each(static_cast<float>(ranks_ * rank_)));
}

// Sums of the switch, or of symmetric kernels, would not have the bits of a ring.
TEST_F(NcclWindows, AreNotForDeterministicSums) {
  const auto comm = make_windowed(true);
  EXPECT_EQ(comm->memory_for_windows(), nullptr);
  void* const block = device_.allocator(MemoryKind::kGradients).allocate(kElements * 4);
  EXPECT_FALSE(comm::make_window(*comm, view(block)));
  EXPECT_THAT(lines_, IsEmpty()) << "it is what was asked for";
  EXPECT_STREQ(std::getenv("NCCL_WIN_ENABLE"), "0");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_WIN_ENABLE"})
    unsetenv(name);
  device_.allocator(MemoryKind::kGradients).release(block);
}

TEST_F(NcclWindows, NeedOneSizeOnAllRanks) {
  const auto comm = make_windowed();
  void* const block = take(*comm, kElements * 4);
  const MutView mine = view(block, rank_ == 1 ? kElements - 1 : kElements);
  EXPECT_FALSE(comm::make_window(*comm, mine));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("got 12000 bytes on rank 0 and 11996 on rank 1")));
  expect_sum(*comm, view(block));
}

TEST_F(NcclWindows, NeedABufferThatBeginsAtAPage) {
  const auto comm = make_windowed();
  auto* const block = static_cast<float*>(take(*comm, 2 * kElements * 4));
  expect_none(*comm, view(block + (rank_ == 0 ? 0 : 64)), "256 bytes past a multiple on rank 1");
}

TEST_F(NcclWindows, NeedMemoryForThem) {
  const auto comm = make_windowed();
  auto* const block = static_cast<char*>(device_.allocator(MemoryKind::kGradients).allocate(kElements * 4 + kPage));
  char* const page = block + (kPage - reinterpret_cast<uintptr_t>(block) % kPage) % kPage;
  expect_none(*comm, view(page), "NCCL does not support a window of this memory on these machines");
  device_.allocator(MemoryKind::kGradients).release(block);
}

// What one rank lacks none has, and nothing is left that would keep the communicator from ending.
TEST_F(NcclWindows, AreMadeOnAllRanksOrOnNone) {
  const auto comm = make_windowed();
  void* const block = take(*comm, kElements * 4);
  std::optional<Variable> fault;
  if (rank_ == ranks_ - 1) fault.emplace("ASHLAR_STAND_IN_NCCL_FAULT", "no windows here");
  expect_none(*comm, view(block), "NCCL does not support a window");
}

TEST_F(NcclWindows, ThatAreRefusedAreSaidInTheWordsOfNccl) {
  const auto comm = make_windowed();
  void* const block = take(*comm, kElements * 4);
  const Variable fault("ASHLAR_STAND_IN_NCCL_FAULT", "refuses windows");
  expect_none(*comm, view(block), "unhandled cuda error: [stand-in nccl] no such memory");
}

TEST_F(NcclWindows, NeedALibraryThatHasThem) {
  const Variable fault("ASHLAR_STAND_IN_NCCL_FAULT", "no windows yet");
  const auto comm = make_windowed();
  EXPECT_EQ(comm->memory_for_windows(), nullptr);
  void* const block = device_.allocator(MemoryKind::kGradients).allocate(kElements * 4);
  expect_none(*comm, view(block), "expected NCCL 2.27 or later, got an older one on rank 0");
  device_.allocator(MemoryKind::kGradients).release(block);
}

// Where no NCCL is, a run goes through host memory, and nobody speaks of windows.
TEST_F(NcclWindows, AreNoMatterOfOtherTransports) {
  const comm::DeviceComm staged = comm::make_device_comm({.host = *host_,
                                                          .control = bootstrap().control(),
                                                          .backend = device_,
                                                          .log = log_,
                                                          .cuda = false,
                                                          .deterministic = false});
  void* const block = device_.allocator(MemoryKind::kGradients).allocate(kElements * 4);
  EXPECT_FALSE(comm::make_window(*staged.all, view(block)));
  EXPECT_FALSE(comm::make_window(*host_, view(block)));
  EXPECT_THAT(lines_, IsEmpty());
  expect_sum(*staged.all, view(block));
  device_.allocator(MemoryKind::kGradients).release(block);
}

// The stand-in refuses what the vendor's documents do: a test that runs over it has shown that places are equal.
TEST_F(NcclWindows, HoldCollectivesAtOnePlaceOnAllRanks) {
  const auto comm = make_windowed();
  auto* const block = static_cast<float*>(take(*comm, 2 * kElements * 4));
  ASSERT_TRUE(comm::make_window(*comm, view(block, 2 * kElements)));
  const MutView shifted = view(block + (rank_ == 0 ? 0 : 4));
  device_.fill({.dst = shifted, .value = 1}, *stream_);
  EXPECT_THROW(
      {
        comm->all_reduce({.in = shifted, .out = shifted, .op = ReduceOp::kSum}, *stream_).wait(*stream_);
        stream_->synchronize();
      },
      std::logic_error);
  comm->abort_function()();
}

}  // namespace
}  // namespace ashlar::testing
