// Several operations at once, on one communicator and on many, completed in any order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "core/base/error.h"
#include "parallel/comm/host.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"

namespace ashlar::testing {
namespace {

using comm::ReduceOp;
using comm::Work;

class InFlight : public OnEachKind {};

// A different order on each rank, and on each trial.
std::vector<size_t> shuffled(size_t count, int rank, uint64_t trial) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = count; i > 1; --i) {
    const uint32_t word = Philox::block(trial, static_cast<uint64_t>(rank), i)[0];
    std::swap(order[i - 1], order[word % i]);
  }
  return order;
}

// Buckets of gradients under way while messages pass, as in a pipeline with data parallelism.
TEST_P(InFlight, AnyOrderOfCompletion) {
  const int next = (rank_ + 1) % ranks_, before = (rank_ + ranks_ - 1) % ranks_;
  for (uint64_t trial = 0; trial < 3; ++trial) {
    std::vector<int64_t> sizes;
    for (uint64_t i = 0; i < 6; ++i)
      sizes.push_back(up_to(Philox::block(trial, 99, i)[0] % (60000 / static_cast<uint32_t>(ranks_))));
    std::deque<Buffer<float>> sums, wholes, sent, received, parted, exchanged;
    std::deque<Buffer<BF16>> maxima;
    std::vector<Work> works;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[i];
      sums.emplace_back(size, rank_, i);
      maxima.emplace_back(size / 7, rank_, i);
      wholes.emplace_back(size * ranks_);
      sent.emplace_back(size / 2, rank_, i);
      received.emplace_back(size / 2);
      works.push_back(
          comm_->all_reduce({.in = sums.back().view(), .out = sums.back().view(), .op = ReduceOp::kSum}, stream_));
      works.push_back(comm_->send_recv(
          {.send = sent.back().view(), .to = next, .recv = received.back().view(), .from = before}, stream_));
      works.push_back(
          comm_->all_reduce({.in = maxima.back().view(), .out = maxima.back().view(), .op = ReduceOp::kMax}, stream_));
      Buffer<float>& whole = wholes.back();
      for (int64_t k = 0; k < size; ++k) whole[rank_ * size + k] = operand_at<float>(rank_, k, i + 50);
      works.push_back(comm_->all_gather(
          {.in = whole.view(rank_ * size, (rank_ + 1) * size), .out = whole.view(), .parts = {}}, stream_));
      parted.emplace_back(size / 3 * ranks_, rank_, i + 70);
      exchanged.emplace_back(size / 3 * ranks_);
      works.push_back(comm_->all_to_all(
          {.send = parted.back().view(), .recv = exchanged.back().view(), .send_parts = {}, .recv_parts = {}},
          stream_));
      if (i % 2 == 0) comm_->progress();
    }
    for (const size_t w : shuffled(works.size(), rank_, trial)) {
      if (w % 3 == 0) {
        while (!works[w].done()) {
        }
      }
      works[w].wait();
      EXPECT_TRUE(works[w].ready());
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t seed = i;
      EXPECT_EQ(sums[i].wrong_sums(comm::sums_of(*comm_), ranks_, seed), 0) << i;
      EXPECT_EQ(maxima[i].differing([&](int64_t k) { return max_at<BF16>(ranks_, k, seed); }), 0) << i;
      EXPECT_EQ(received[i].differing([&](int64_t k) { return operand_at<float>(before, k, seed); }), 0) << i;
      const int64_t size = sizes[i];
      EXPECT_EQ(wholes[i].differing(
                    [&](int64_t k) { return operand_at<float>(static_cast<int>(k / size), k % size, seed + 50); }),
                0)
          << i;
      const int64_t part = size / 3;
      EXPECT_EQ(exchanged[i].differing([&](int64_t k) {
        return operand_at<float>(static_cast<int>(k / part), rank_ * part + k % part, seed + 70);
      }),
                0)
          << i;
    }
  }
}

// Two ranks that wait on different communicators must not hold each other up.
TEST_P(InFlight, WaitingOnOneCommunicatorDrivesTheOthers) {
  const std::unique_ptr<comm::Communicator> other = comm_->split({.color = 0, .key = -rank_, .name = "other"});
  const int64_t size = large();
  Buffer<float> a(size, rank_, 1), b(size, other->rank(), 2);
  Work first = comm_->all_reduce({.in = a.view(), .out = a.view(), .op = ReduceOp::kSum}, stream_);
  Work second = other->all_reduce({.in = b.view(), .out = b.view(), .op = ReduceOp::kSum}, stream_);
  if (rank_ % 2 == 0) {
    first.wait();
    second.wait();
  } else {
    second.wait();
    first.wait();
  }
  EXPECT_EQ(a.wrong_sums(comm::sums_of(*comm_), ranks_, 1), 0);
  EXPECT_EQ(b.wrong_sums(comm::sums_of(*comm_), ranks_, 2), 0);
}

// Messages of one pair meet in the order of issue, whoever waits for which first.
TEST_P(InFlight, MessagesOfAPairKeepTheirOrder) {
  constexpr int kCount = 40;
  const int peer = rank_ ^ 1;
  if (peer >= ranks_) return;
  std::deque<Buffer<int32_t>> buffers;
  std::vector<Work> works;
  for (int i = 0; i < kCount; ++i) {
    const int64_t size = up_to(i % 4 == 0 ? 30000 + i : i);
    const bool sends = (rank_ + i) % 2 == 0;
    if (sends) {
      buffers.emplace_back(size, rank_, i);
      works.push_back(comm_->send({.data = buffers.back().view(), .to = peer}, stream_));
    } else {
      buffers.emplace_back(size);
      works.push_back(comm_->recv({.data = buffers.back().view(), .from = peer}, stream_));
    }
  }
  for (const size_t w : shuffled(works.size(), rank_, 5)) works[w].wait();
  for (int i = 0; i < kCount; ++i) {
    const int from = (rank_ + i) % 2 == 0 ? rank_ : peer;
    Buffer<int32_t>& buffer = buffers[static_cast<size_t>(i)];
    EXPECT_EQ(buffer.differing([&](int64_t k) { return operand_at<int32_t>(from, k, i); }), 0) << "message " << i;
  }
}

// The host memory through which a device's buffers go is used by the next operation, which another stream may queue
// before the way back of the one before has been made.
TEST_P(InFlight, StagingIsUsedAgainOnlyBehindItsWayBack) {
  if (device_ == nullptr) return;  // no staging
  const std::unique_ptr<Stream> other = device_->make_stream();
  for (uint64_t trial = 0; trial < 10; ++trial) {
    const int64_t size = up_to(500);
    Buffer<float> x(size, rank_, trial), y(size, rank_, trial + 100);
    comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_).wait(stream_);
    comm_->all_reduce({.in = y.view(), .out = y.view(), .op = ReduceOp::kSum}, *other).wait(*other);
    stream_.synchronize();
    other->synchronize();
    EXPECT_EQ(x.wrong_sums(comm::sums_of(*comm_), ranks_, trial), 0);
    EXPECT_EQ(y.wrong_sums(comm::sums_of(*comm_), ranks_, trial + 100), 0);
  }
}

TEST_P(InFlight, AWorkThatIsDroppedWaits) {
  const int64_t size = large();
  Buffer<float> x(size, rank_), y(size, rank_, 2);
  { const Work dropped = comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_); }
  EXPECT_EQ(x.wrong_sums(comm::sums_of(*comm_), ranks_), 0);
  Work reused = comm_->all_reduce({.in = y.view(), .out = y.view(), .op = ReduceOp::kSum}, stream_);
  reused = Work();
  EXPECT_EQ(y.wrong_sums(comm::sums_of(*comm_), ranks_, 2), 0);
  EXPECT_TRUE(reused.done());
}

TEST_P(InFlight, ManyOperationsInARow) {
  Buffer<int32_t> x(1);
  for (int i = 0; i < 100; ++i) {
    x[0] = rank_ + i;
    comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kMax}, stream_).wait();
    ASSERT_EQ(x[0], ranks_ - 1 + i);
  }
}

TEST_P(InFlight, SplitsWorkAloneAndTogether) {
  const std::unique_ptr<comm::Communicator> none = comm_->split({.color = -1, .key = 0, .name = "none"});
  EXPECT_EQ(none, nullptr);
  for (const int groups : {1, 2, 3}) {
    const auto part = comm_->split({.color = rank_ % groups, .key = -rank_, .name = str_cat("part", groups)});
    int members = 0, mine = 0;
    for (int rank = ranks_ - 1; rank >= 0; --rank) {
      if (rank % groups != rank_ % groups) continue;
      if (rank == rank_) mine = members;
      ++members;
    }
    ASSERT_EQ(part->size(), members);
    ASSERT_EQ(part->rank(), mine);
    EXPECT_EQ(part->name(), str_cat("part", groups));
    Buffer<float> x(1000, mine, 3), y(50, rank_, 4);
    Work inner = part->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_);
    Work outer = comm_->all_reduce({.in = y.view(), .out = y.view(), .op = ReduceOp::kSum}, stream_);
    outer.wait();
    inner.wait();
    EXPECT_EQ(x.wrong_sums(comm::sums_of(*part), members, 3), 0);
    EXPECT_EQ(y.wrong_sums(comm::sums_of(*comm_), ranks_, 4), 0);
    const auto alone = part->split({.color = part->rank(), .key = 0, .name = "alone"});
    EXPECT_EQ(alone->size(), 1);
    comm::ControlPlane control(*alone, "control");
    EXPECT_EQ(comm::sum_of(control, int64_t{rank_}), rank_);
  }
}

TEST_P(InFlight, TheLastOperationIsKnown) {
  Buffer<float> x(4096, rank_);
  Work work = comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_);
  const std::string text = str_cat("all_reduce sum fp32[4096] on ", comm_->name(), ", operation 0");
  EXPECT_EQ(comm_->last_operation(), text);
  work.wait();
  comm_->barrier(stream_).wait();
  EXPECT_EQ(comm_->last_operation(), str_cat("barrier on ", comm_->name(), ", operation 1"));
}

INSTANTIATE_TEST_SUITE_P(Comm, InFlight, each_kind(), kind_name);

}  // namespace
}  // namespace ashlar::testing
