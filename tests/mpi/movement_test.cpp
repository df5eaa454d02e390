// What only moves data: all_gather, all_to_all, broadcast, messages, barrier, the helpers for host values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "core/base/error.h"
#include "parallel/comm/host.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"
#include "tests/support/ranks/gather_texts.h"

namespace ashlar::testing {
namespace {

using comm::Range;
using ::testing::ElementsAre;

class Movement : public OnEachKind {
 protected:
  template <typename T>
  void all_gather(const std::vector<Range>& parts, int64_t size, bool equal, bool in_place) {
    SCOPED_TRACE(str_cat(ashlar::name_of(DTypeOf<T>::value), "[", size, "]", in_place ? " in place" : ""));
    const Range mine = parts[static_cast<size_t>(rank_)];
    Buffer<T> in(mine.size(), rank_), out(size);
    if (in_place) std::copy_n(in.data(), mine.size(), out.data() + mine.begin);
    comm_
        ->all_gather({.in = in_place ? out.view(mine.begin, mine.end) : in.view(),
                      .out = out.view(),
                      .parts = equal ? std::span<const Range>() : parts},
                     stream_)
        .wait();
    int64_t reached = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Range part = parts[static_cast<size_t>(rank)];
      EXPECT_EQ(out.differing(part.begin, part.end, [&](int64_t i) { return operand_at<T>(rank, i - part.begin); }), 0)
          << "part of rank " << rank;
      EXPECT_TRUE(out.untouched(reached, part.begin)) << "gap before the part of rank " << rank;
      reached = part.end;
    }
    EXPECT_TRUE(out.untouched(reached, size) && out.guards_hold() && in.guards_hold());
  }

  using Counts = std::function<int64_t(int from, int to)>;
  // The parts of a buffer of `rank`, `gap` elements apart: of what it sends, or of what it receives.
  std::vector<Range> parts_of(int rank, const Counts& counts, bool received, int64_t gap) const {
    std::vector<Range> parts;
    int64_t at = gap;
    for (int peer = 0; peer < ranks_; ++peer) {
      parts.push_back({at, at + (received ? counts(peer, rank) : counts(rank, peer))});
      at = parts.back().end + gap * (peer % 2 + 1);
    }
    return parts;
  }

  template <typename T>
  void all_to_all(const Counts& counts, bool equal, int64_t gap = 0) {
    const std::vector<Range> sent = parts_of(rank_, counts, false, gap), received = parts_of(rank_, counts, true, gap);
    const int64_t size = received.back().end + gap;
    SCOPED_TRACE(str_cat(ashlar::name_of(DTypeOf<T>::value), "[", sent.back().end, "] to [", size, "]"));
    Buffer<T> out(sent.back().end, rank_), in(size);
    const std::span<const Range> none;
    comm_
        ->all_to_all({.send = out.view(),
                      .recv = in.view(),
                      .send_parts = equal ? none : sent,
                      .recv_parts = equal ? none : received},
                     stream_)
        .wait();
    int64_t reached = 0;
    for (int from = 0; from < ranks_; ++from) {
      const Range part = received[static_cast<size_t>(from)];
      const int64_t begin = parts_of(from, counts, false, gap)[static_cast<size_t>(rank_)].begin;
      EXPECT_EQ(
          in.differing(part.begin, part.end, [&](int64_t i) { return operand_at<T>(from, begin + i - part.begin); }), 0)
          << "part from rank " << from;
      EXPECT_TRUE(in.untouched(reached, part.begin)) << "gap before the part from rank " << from;
      reached = part.end;
    }
    EXPECT_TRUE(in.untouched(reached, size) && in.guards_hold() && out.guards_hold());
    EXPECT_EQ(out.differing([&](int64_t i) { return operand_at<T>(rank_, i); }), 0) << "what is sent was written";
  }

  template <typename T>
  void broadcast(int64_t size, int root) {
    SCOPED_TRACE(str_cat(ashlar::name_of(DTypeOf<T>::value), "[", size, "] from ", root));
    Buffer<T> x(size, rank_);
    comm_->broadcast({.data = x.view(), .root = root}, stream_).wait();
    EXPECT_EQ(x.differing([&](int64_t i) { return operand_at<T>(root, i); }), 0);
    EXPECT_TRUE(x.guards_hold());
  }

  // Each rank sends to the next and receives from the one before.
  template <typename T>
  void ring(int64_t size) {
    SCOPED_TRACE(str_cat(ashlar::name_of(DTypeOf<T>::value), "[", size, "]"));
    const int next = (rank_ + 1) % ranks_, before = (rank_ + ranks_ - 1) % ranks_;
    Buffer<T> out(size + rank_, rank_), in(size + before);
    comm_->send_recv({.send = out.view(), .to = next, .recv = in.view(), .from = before}, stream_).wait();
    EXPECT_EQ(in.differing([&](int64_t i) { return operand_at<T>(before, i); }), 0);
    EXPECT_EQ(out.differing([&](int64_t i) { return operand_at<T>(rank_, i); }), 0);
    EXPECT_TRUE(in.guards_hold());
  }
};

TEST_P(Movement, AllGatherOfEqualParts) {
  for (const bool in_place : {false, true}) {
    for (const int64_t part : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1031}, large() / ranks_}) {
      const std::vector<Range> parts = comm::even_ranges(part * ranks_, ranks_);
      all_gather<float>(parts, part * ranks_, true, in_place);
      all_gather<BF16>(parts, part * ranks_, true, in_place);
      all_gather<uint8_t>(parts, part * ranks_, true, in_place);
      if (part > 2000) continue;
      all_gather<double>(parts, part * ranks_, true, in_place);
      all_gather<int32_t>(parts, part * ranks_, true, in_place);
      all_gather<int64_t>(parts, part * ranks_, true, in_place);
    }
  }
}

TEST_P(Movement, AllGatherOfUnevenPartsWithGaps) {
  for (const bool in_place : {false, true}) {
    for (const int64_t scale : {int64_t{1}, int64_t{33}, int64_t{700}, large() / ranks_ / ranks_}) {
      std::vector<Range> parts;
      int64_t at = 2;
      for (int rank = 0; rank < ranks_; ++rank) {
        parts.push_back({at, at + (rank == 1 ? 0 : scale * (ranks_ - rank) + rank)});
        at = parts.back().end + rank % 2;
      }
      all_gather<float>(parts, at + 3, false, in_place);
      all_gather<BF16>(parts, at + 3, false, in_place);
      all_gather<double>(parts, at + 3, false, in_place);
      all_gather<int32_t>(parts, at + 3, false, in_place);
    }
  }
}

TEST_P(Movement, AllToAllOfEqualParts) {
  for (const int64_t part : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1031}, large() / ranks_}) {
    const Counts counts = [part](int, int) { return part; };
    all_to_all<float>(counts, true);
    all_to_all<BF16>(counts, true);
    all_to_all<uint8_t>(counts, true);
    if (part > 2000) continue;
    all_to_all<double>(counts, true);
    all_to_all<int32_t>(counts, true);
    all_to_all<int64_t>(counts, true);
  }
}

// Tokens to experts: every pair of ranks has a count of its own, some none; one rank may get everything.
TEST_P(Movement, AllToAllOfVaryingPartsWithGaps) {
  for (const int64_t gap : {int64_t{0}, int64_t{3}}) {
    for (const int64_t scale : {int64_t{1}, int64_t{33}, int64_t{700}, large() / ranks_ / (ranks_ + 1)}) {
      const Counts varying = [&](int from, int to) {
        return (from + 2 * to) % 3 == 1 ? 0 : scale * (1 + (3 * from + to) % ranks_) + from;
      };
      const Counts to_the_last = [&](int from, int to) { return to + 1 == ranks_ ? scale + from : 0; };
      for (const Counts& counts : {varying, to_the_last}) {
        all_to_all<float>(counts, false, gap);
        all_to_all<BF16>(counts, false, gap);
        all_to_all<double>(counts, false, gap);
        all_to_all<int32_t>(counts, false, gap);
        all_to_all<uint8_t>(counts, false, gap);
      }
    }
  }
}

TEST_P(Movement, BroadcastFromEachRank) {
  for (int root = 0; root < ranks_; ++root) {
    for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}, large() / ranks_}) {
      broadcast<float>(size, root);
      broadcast<uint8_t>(size, root);
    }
    broadcast<double>(100, root);
    broadcast<BF16>(101, root);
    broadcast<int32_t>(102, root);
  }
}

TEST_P(Movement, RingOfSendRecv) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{3000}, large()}) {
    ring<float>(size);
    ring<BF16>(size);
    if (size > 4000) continue;
    ring<double>(size);
    ring<int32_t>(size);
    ring<uint8_t>(size);
  }
}

// The layout of a pipeline: everybody but the first receives, everybody but the last sends.
TEST_P(Movement, ChainOfSendAndRecv) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{4097}, large()}) {
    Buffer<float> x(size, rank_);
    if (rank_ > 0) comm_->recv({.data = x.view(), .from = rank_ - 1}, stream_).wait();
    for (int64_t i = 0; i < size; ++i) x[i] += 1.0F;
    if (rank_ + 1 < ranks_) comm_->send({.data = x.view(), .to = rank_ + 1}, stream_).wait();
    EXPECT_EQ(x.differing([&](int64_t i) {
      float value = operand_at<float>(0, i);
      for (int rank = 0; rank <= rank_; ++rank) value += 1.0F;
      return value;
    }),
              0);
  }
}

// Neighbours swap: one SendRecv on both, of different dtypes and sizes.
TEST_P(Movement, NeighboursSwap) {
  const int peer = rank_ ^ 1;
  if (peer >= ranks_) return;
  const int64_t size = large();
  if (rank_ % 2 == 0) {
    Buffer<float> out(size, rank_);
    Buffer<BF16> in(17);
    comm_->send_recv({.send = out.view(), .to = peer, .recv = in.view(), .from = peer}, stream_).wait();
    EXPECT_EQ(in.differing([&](int64_t i) { return operand_at<BF16>(peer, i); }), 0);
  } else {
    Buffer<BF16> out(17, rank_);
    Buffer<float> in(size);
    comm_->send_recv({.send = out.view(), .to = peer, .recv = in.view(), .from = peer}, stream_).wait();
    EXPECT_EQ(in.differing([&](int64_t i) { return operand_at<float>(peer, i); }), 0);
  }
}

// A rank may hold two neighbouring stages.
TEST_P(Movement, MessagesToOneselfMeetInOrder) {
  Buffer<float> a(1000, 0), b(20, 1), x(1000), y(20);
  comm::Work first = comm_->send({.data = a.view(), .to = rank_}, stream_);
  comm::Work second = comm_->send({.data = b.view(), .to = rank_}, stream_);
  comm::Work third = comm_->recv({.data = x.view(), .from = rank_}, stream_);
  comm::Work fourth = comm_->recv({.data = y.view(), .from = rank_}, stream_);
  fourth.wait();
  third.wait();
  second.wait();
  first.wait();
  EXPECT_EQ(x.differing([](int64_t i) { return operand_at<float>(0, i); }), 0);
  EXPECT_EQ(y.differing([](int64_t i) { return operand_at<float>(1, i); }), 0);
  ASSERT_TRUE(x.guards_hold() && y.guards_hold());
}

TEST_P(Movement, NobodyLeavesABarrierBeforeTheLastHasCome) {
  using Clock = std::chrono::steady_clock;
  for (int late = 0; late < ranks_; ++late) {
    if (rank_ == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const int64_t came = Clock::now().time_since_epoch().count();
    comm_->barrier(stream_).wait();
    const int64_t left = Clock::now().time_since_epoch().count();
    for (const int64_t other : comm::gather_values(control_, came)) EXPECT_LE(other, left);
  }
}

TEST_P(Movement, HostValues) {
  EXPECT_EQ(comm::sum_of(control_, int64_t{1} << (40 + rank_)), ((int64_t{1} << ranks_) - 1) << 40);
  EXPECT_EQ(comm::max_of(control_, int64_t{-5} - rank_), -5);
  EXPECT_EQ(comm::min_of(control_, int64_t{-5} - rank_), -4 - ranks_);
  EXPECT_EQ(comm::max_of(control_, -1.5 * rank_), 0);
  std::vector<double> values = {1.0 * rank_, 2.0};
  comm::sum_all(control_, values);
  EXPECT_THAT(values, ElementsAre(ranks_ * (ranks_ - 1) / 2, 2.0 * ranks_));

  struct Pair {
    int32_t rank;
    double half;
  };
  const std::vector<Pair> pairs = comm::gather_values(control_, Pair{rank_, rank_ / 2.0});
  const std::vector<std::string> texts = gather_texts(control_, std::string(static_cast<size_t>(rank_), 'x'));
  ASSERT_EQ(static_cast<int>(pairs.size()), ranks_);
  ASSERT_EQ(static_cast<int>(texts.size()), ranks_);
  for (int rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(pairs[static_cast<size_t>(rank)].rank, rank);
    EXPECT_EQ(pairs[static_cast<size_t>(rank)].half, rank / 2.0);
    EXPECT_EQ(texts[static_cast<size_t>(rank)], std::string(static_cast<size_t>(rank), 'x'));
  }
  EXPECT_THAT(gather_texts(control_, ""), ::testing::Each(""));
  for (int root = 0; root < ranks_; ++root) {
    const std::string mine(static_cast<size_t>(rank_), 'y');
    const std::vector<std::string> at_root = gather_texts_at(control_, mine, root);
    ASSERT_EQ(static_cast<int>(at_root.size()), rank_ == root ? ranks_ : 0);
    for (size_t rank = 0; rank < at_root.size(); ++rank) EXPECT_EQ(at_root[rank], std::string(rank, 'y'));
    EXPECT_EQ(comm::broadcast_text(control_, mine, root), std::string(static_cast<size_t>(root), 'y'));
    EXPECT_EQ(comm::broadcast_value(control_, 1.5 * rank_, root), 1.5 * root);
  }

  std::vector<std::byte> id(128, static_cast<std::byte>(rank_));
  comm::broadcast_bytes(control_, id, ranks_ - 1);
  EXPECT_THAT(id, ::testing::Each(static_cast<std::byte>(ranks_ - 1)));
}

INSTANTIATE_TEST_SUITE_P(Comm, Movement, each_kind(), kind_name);

}  // namespace
}  // namespace ashlar::testing
