// all_reduce and reduce_scatter: the sums that a communicator promises, on every kind of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "parallel/comm/host.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"

namespace ashlar::testing {
namespace {

using comm::Range;
using comm::ReduceOp;

class Reduction : public OnEachKind {
 protected:
  template <typename T>
  void all_reduce(int64_t size, bool in_place) {
    SCOPED_TRACE(str_cat(name_of(DTypeOf<T>::value), "[", size, "]", in_place ? " in place" : ""));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      Buffer<T> in(size, rank_), out(size);
      Buffer<T>& result = in_place ? in : out;
      comm_->all_reduce({.in = in.view(), .out = result.view(), .op = op}, stream_).wait();
      if (op == ReduceOp::kSum) {
        EXPECT_EQ(result.wrong_sums(comm::sums_of(*comm_), ranks_), 0);
      } else {
        EXPECT_EQ(result.differing([&](int64_t i) { return max_at<T>(ranks_, i); }), 0);
      }
      EXPECT_TRUE(in.guards_hold() && out.guards_hold());
      if (!in_place) {
        EXPECT_EQ(in.differing([&](int64_t i) { return operand_at<T>(rank_, i); }), 0);
      }
    }
  }

  template <typename T>
  void reduce_scatter(const std::vector<Range>& parts, int64_t size, bool equal, bool in_place) {
    SCOPED_TRACE(str_cat(name_of(DTypeOf<T>::value), "[", size, "]", in_place ? " in place" : ""));
    const Range mine = parts[static_cast<size_t>(rank_)];
    Buffer<T> in(size, rank_), out(mine.size());
    comm_
        ->reduce_scatter({.in = in.view(),
                          .out = in_place ? in.view(mine.begin, mine.end) : out.view(),
                          .parts = equal ? std::span<const Range>() : parts},
                         stream_)
        .wait();
    const T* const got = in_place ? in.data() + mine.begin : out.data();
    EXPECT_EQ(wrong_sums(got, mine.size(), comm::sums_of(*comm_), ranks_, 1, mine.begin), 0) << "part " << rank_;
    EXPECT_TRUE(in.guards_hold() && out.guards_hold());
    const auto operand = [&](int64_t i) { return operand_at<T>(rank_, i); };
    EXPECT_EQ(in.differing(0, in_place ? mine.begin : size, operand), 0);
    EXPECT_EQ(in.differing(in_place ? mine.end : 0, size, operand), 0);
  }

  // Every rank another size, one of them none, a gap before each, elements at the end that nobody gets.
  std::vector<Range> uneven(int64_t scale) const {
    std::vector<Range> parts;
    int64_t at = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      at += rank % 3;
      parts.push_back({at, at + (rank == 1 ? 0 : scale * (rank + 1) + rank)});
      at = parts.back().end;
    }
    return parts;
  }
};

TEST_P(Reduction, AllReduceHasTheSumThatIsPromised) {
  for (const bool in_place : {false, true}) {
    for (const int64_t size :
         {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{257}, int64_t{1000}, up_to(4099)}) {
      all_reduce<float>(size, in_place);
      all_reduce<double>(size, in_place);
      all_reduce<BF16>(size, in_place);
      all_reduce<int32_t>(size, in_place);
    }
  }
}

TEST_P(Reduction, AllReduceOfLargeVectors) {
  all_reduce<float>(large(), false);
  all_reduce<BF16>(large() / 2, true);
  all_reduce<double>(large() / 3, true);
}

TEST_P(Reduction, ReduceScatterInEqualParts) {
  for (const bool in_place : {false, true}) {
    for (const int64_t part : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1031}, large() / ranks_}) {
      const std::vector<Range> parts = comm::even_ranges(part * ranks_, ranks_);
      reduce_scatter<float>(parts, part * ranks_, true, in_place);
      reduce_scatter<BF16>(parts, part * ranks_, true, in_place);
      if (part > 2000) continue;
      reduce_scatter<double>(parts, part * ranks_, true, in_place);
      reduce_scatter<int32_t>(parts, part * ranks_, true, in_place);
    }
  }
}

TEST_P(Reduction, ReduceScatterInUnevenParts) {
  for (const bool in_place : {false, true}) {
    for (const int64_t scale : {int64_t{1}, int64_t{33}, int64_t{700}, large() / ranks_ / ranks_}) {
      const std::vector<Range> parts = uneven(scale);
      reduce_scatter<float>(parts, parts.back().end + 3, false, in_place);
      reduce_scatter<BF16>(parts, parts.back().end + 3, false, in_place);
      if (scale > 2000) continue;
      reduce_scatter<double>(parts, parts.back().end + 3, false, in_place);
      reduce_scatter<int32_t>(parts, parts.back().end + 3, false, in_place);
    }
  }
}

// The operands are such that another order of addition shows: otherwise the tests above prove less than they say.
TEST_P(Reduction, AnotherOrderWouldHaveOtherBits) {
  if (ranks_ < 3) return;  // two numbers have one sum
  int64_t other = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    float sum = operand_at<float>(ranks_ - 1, i);
    for (int rank = ranks_ - 2; rank >= 0; --rank) sum += operand_at<float>(rank, i);
    other += sum != sum_at<float>(ranks_, i);
  }
  EXPECT_GT(other, 100);
}

// 256 + 1 + 1: bf16 has a spacing of 2 there, so rounding after each addition stays at 256.
TEST_P(Reduction, SumsOfBf16AreRoundedOnce) {
  if (comm::sums_of(*comm_) != comm::Sums::kRankOrder) return;
  for (const int64_t size : {int64_t{7}, up_to(40000)}) {
    Buffer<BF16> x(size);
    for (int64_t i = 0; i < size; ++i) x[i] = BF16(rank_ == 0 ? 256.0F : 1.0F);
    comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_).wait();
    const BF16 once(256.0F + static_cast<float>(ranks_ - 1));
    EXPECT_EQ(x.differing([&](int64_t) { return once; }), 0);
    BF16 hops(256.0F);
    for (int rank = 1; rank < ranks_; ++rank) hops = BF16(static_cast<float>(hops) + 1.0F);
    if (ranks_ > 2) {
      EXPECT_NE(hops.bits, once.bits);
    }
  }
}

TEST_P(Reduction, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const bool last = rank_ == ranks_ - 1, keeps_nan = comm::sums_of(*comm_) == comm::Sums::kRankOrder;
  for (const int64_t padding : {int64_t{0}, up_to(100000)}) {
    Buffer<float> x(3 + padding);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      std::fill_n(x.data(), x.size(), -0.0F);
      x[1] = last ? kNan : 1.0F;
      x[2] = last ? kInf : -1.0F;
      comm_->all_reduce({.in = x.view(), .out = x.view(), .op = op}, stream_).wait();
      EXPECT_TRUE(x[0] == 0 && std::signbit(x[0])) << "-0 is kept";
      if (op == ReduceOp::kSum || keeps_nan) {
        EXPECT_TRUE(std::isnan(x[1]));
      }
      EXPECT_EQ(x[2], kInf);
    }
    x[0] = rank_ == 0 ? kNan : 1.0F;
    comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kMax}, stream_).wait();
    EXPECT_EQ(std::isnan(x[0]), keeps_nan) << "a NaN of the first rank is kept, too";
  }
}

TEST_P(Reduction, EveryRankHasTheSameBits) {
  const int64_t size = large() / 3;
  Buffer<BF16> x(size, rank_, 7);
  comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_).wait();
  uint64_t hash = 0;
  for (int64_t i = 0; i < size; ++i) hash = (hash ^ x[i].bits) * 0x100000001b3ULL;
  for (const uint64_t other : comm::gather_values(control_, hash)) EXPECT_EQ(other, hash);
}

INSTANTIATE_TEST_SUITE_P(Comm, Reduction, each_kind(), kind_name);

TEST(ReductionInt32, ASumBeyondItsRangeIsABug) {
  const std::unique_ptr<comm::Communicator> comm = make_communicator(Kind::kWorld);
  if (comm->size() == 1) return;  // one number is in range
  int32_t value = std::numeric_limits<int32_t>::max();
  const MutView view{&value, DType::kInt32, 1, 1, 1};
  SynchronousStream stream;
  EXPECT_THROW(comm->all_reduce({.in = view, .out = view, .op = ReduceOp::kSum}, stream).wait(), Bug);
}

}  // namespace
}  // namespace ashlar::testing
