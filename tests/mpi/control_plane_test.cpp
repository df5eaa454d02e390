// Host values: what each operation computes, which way it goes, and that ranks which differ are told so.
#include "parallel/comm/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"
#include "tests/support/thrown.h"

namespace ashlar::testing {
namespace {

using comm::ReduceOp;
using comm::Work;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Control : public OnEachKind {};

// The sum of ranks [begin, begin + width) as the tree associates it: halves of a power of two.
double tree_sum(const std::function<double(int)>& of, int begin, int width, int ranks) {
  if (width == 1) return of(begin);
  const double left = tree_sum(of, begin, width / 2, ranks);
  return begin + width / 2 >= ranks ? left : left + tree_sum(of, begin + width / 2, width / 2, ranks);
}

// Of all sizes: none, one, what fits into a frame and what does not, several megabytes.
TEST_P(Control, SumsMaximaAndMinima) {
  const auto real = [](int rank, size_t i) { return std::sin(1.0 + 17.0 * rank + static_cast<double>(i)); };
  const auto whole = [](int rank, size_t i) {
    return static_cast<int64_t>(i * 7919 + 104729U * static_cast<size_t>(rank)) % 1009 - 500;
  };
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{100}, static_cast<size_t>(up_to(60000))}) {
    std::vector<double> sums, maxima, minima;
    std::vector<int64_t> int_sums, int_maxima, int_minima;
    for (size_t i = 0; i < size; ++i) {
      sums.push_back(real(rank_, i));
      int_sums.push_back(whole(rank_, i));
    }
    maxima = minima = sums;
    int_maxima = int_minima = int_sums;
    maxima.resize(size / 2);
    int_minima.resize(size / 3);
    control_
        .reduce({.label = "all of them",
                 .sums = sums,
                 .maxima = maxima,
                 .minima = minima,
                 .int_sums = int_sums,
                 .int_maxima = int_maxima,
                 .int_minima = int_minima})
        .wait();
    for (size_t i = 0; i < size; ++i) {
      const double sum = tree_sum([&](int rank) { return real(rank, i); }, 0,
                                  static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_))), ranks_);
      ASSERT_EQ(sums[i], sum) << size << ", element " << i;
      double max = -2, min = 2;
      int64_t int_sum = 0, int_max = -1000, int_min = 1000;
      for (int rank = 0; rank < ranks_; ++rank) {
        max = std::max(max, real(rank, i)), min = std::min(min, real(rank, i));
        int_sum += whole(rank, i);
        int_max = std::max(int_max, whole(rank, i)), int_min = std::min(int_min, whole(rank, i));
      }
      if (i < maxima.size()) {
        ASSERT_EQ(maxima[i], max);
      }
      ASSERT_EQ(minima[i], min);
      ASSERT_EQ(int_sums[i], int_sum);
      ASSERT_EQ(int_maxima[i], int_max);
      if (i < int_minima.size()) {
        ASSERT_EQ(int_minima[i], int_min);
      }
    }
  }
}

TEST_P(Control, NotANumberIsLargestAndSmallest) {
  for (int who = 0; who < ranks_; ++who) {
    double max = rank_ == who ? std::numeric_limits<double>::quiet_NaN() : rank_, min = max;
    control_.reduce({.maxima = {&max, 1}, .minima = {&min, 1}}).wait();
    EXPECT_TRUE(std::isnan(max) && std::isnan(min)) << who;
  }
}

TEST_P(Control, TextsOfEveryLength) {
  const auto text = [](int rank, int64_t size) {
    std::string letters;
    for (int64_t i = 0; i < size + rank % 3; ++i) letters += static_cast<char>(i * 31 + rank);
    return letters;
  };
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{300}, int64_t{500}, up_to(100000)}) {
    for (int root = 0; root < ranks_; ++root) {
      std::string broadcast = text(rank_, size);
      control_.broadcast({.label = "a text", .text = broadcast, .root = root}).wait();
      EXPECT_EQ(broadcast, text(root, size));
      std::vector<std::string> at_root = {"untouched"};
      control_.gather({.mine = text(rank_, size), .all = at_root, .root = root}).wait();
      ASSERT_EQ(static_cast<int>(at_root.size()), rank_ == root ? ranks_ : 1);
      for (int rank = 0; rank < ranks_ && rank_ == root; ++rank)
        EXPECT_EQ(at_root[static_cast<size_t>(rank)], text(rank, size));
    }
    std::vector<std::string> all;
    control_.gather({.mine = text(rank_, size), .all = all}).wait();
    ASSERT_EQ(static_cast<int>(all.size()), ranks_);
    for (int rank = 0; rank < ranks_; ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)], text(rank, size));
  }
}

TEST_P(Control, UnitedTextsAreThereOnce) {
  std::vector<std::string> texts = {"of all", str_cat("of ", rank_), "of all", str_cat("of ", (rank_ + 1) % ranks_)};
  control_.unite({.texts = texts}).wait();
  std::vector<std::string> want;
  for (int rank = 0; rank < ranks_; ++rank) want.push_back(str_cat("of ", rank));
  want.emplace_back("of all");
  EXPECT_EQ(texts, want);
  std::vector<std::string> nothing;
  control_.unite({.texts = nothing}).wait();
  EXPECT_THAT(nothing, ElementsAre());
}

// Several under way, in any order of waiting, among operations of the data plane.
TEST_P(Control, InFlightBesideTheDataPlane) {
  for (int round = 0; round < 4; ++round) {
    Buffer<float> x(large(), rank_, round), y(100, rank_, round);
    double losses[] = {1.0 * rank_, 0.5};
    int64_t stop = rank_ == ranks_ - 1 ? 77 : 0;
    std::vector<std::string> texts;
    std::vector<Work> work;
    work.push_back(comm_->all_reduce({.in = x.view(), .out = x.view(), .op = ReduceOp::kSum}, stream_));
    work.push_back(control_.reduce({.label = "step", .sums = losses, .int_maxima = {&stop, 1}}));
    work.push_back(comm_->all_reduce({.in = y.view(), .out = y.view(), .op = ReduceOp::kSum}, stream_));
    work.push_back(control_.gather({.mine = std::string(static_cast<size_t>(700 * rank_), 'g'), .all = texts}));
    if (round % 2 == rank_ % 2) std::reverse(work.begin(), work.end());
    if (round >= 2) std::rotate(work.begin(), work.begin() + rank_ % 4, work.end());
    for (Work& w : work) w.wait();
    EXPECT_EQ(x.wrong_sums(comm::sums_of(*comm_), ranks_, round), 0);
    EXPECT_EQ(y.wrong_sums(comm::sums_of(*comm_), ranks_, round), 0);
    EXPECT_THAT(losses, ElementsAre(ranks_ * (ranks_ - 1) / 2, 0.5 * ranks_));
    EXPECT_EQ(stop, 77);
    ASSERT_EQ(static_cast<int>(texts.size()), ranks_);
    EXPECT_EQ(static_cast<int>(texts.back().size()), 700 * (ranks_ - 1));
  }
}

// A rank sends one message to its parent and one to each child, whatever their number.
TEST_P(Control, MessagesGrowWithTheLogarithmOfTheRanks) {
  const int pieces = GetParam() == Kind::kPieces && ranks_ > 1 ? 6 : 1;  // a frame of 512 bytes in messages of 96
  const comm::Traffic before = control_.engine()->control_traffic();
  double value = rank_;
  control_.reduce({.sums = {&value, 1}}).wait();
  const auto mine = control_.engine()->control_traffic().messages - before.messages;
  EXPECT_LE(mine, pieces * (std::bit_width(static_cast<unsigned>(ranks_ - 1)) + (rank_ > 0 ? 1 : 0)));
  int64_t all = mine;
  control_.reduce({.int_sums = {&all, 1}}).wait();
  EXPECT_EQ(all, pieces * 2 * (ranks_ - 1));
}

// Each rank in turn issues something else than the others. All get a Bug that names both.
TEST_P(Control, AnotherOperationIsABugOnAllRanks) {
  if (ranks_ < 2) return;
  double values[3] = {};
  int64_t number = 0;
  std::string text;
  std::vector<std::string> texts;
  const std::function<Work()> sum = [&] { return control_.reduce({.label = "loss", .sums = {values, 2}}); };
  const std::vector<std::pair<std::function<Work()>, std::string>> others = {
      {[&] {
         return control_.reduce({.label = "loss", .sums = {values, 3}});
       },
       "host reduce 'loss' of 24 bytes"},
      {[&] {
         return control_.reduce({.label = "loss", .maxima = {values, 2}});
       },
       "host reduce 'loss' of 16 bytes"},
      {[&] {
         return control_.reduce({.label = "stop", .sums = {values, 2}});
       },
       "host reduce 'stop' of 16 bytes"},
      {[&] {
         return control_.reduce({.int_sums = {&number, 1}});
       },
       "host reduce of 8 bytes"},
      {[&] { return control_.broadcast({.label = "name", .text = text}); }, "host broadcast 'name' from root 0"},
      {[&] { return control_.gather({.mine = std::string(2000, 'x'), .all = texts}); }, "host gather on"},
      {[&] { return control_.gather({.mine = "", .all = texts, .root = 1}); }, "host gather to root 1"},
      {[&] { return control_.unite({.texts = texts}); }, "host unite on"}};
  for (const auto& [other, name] : others) {
    for (int who = 0; who < ranks_; ++who) {
      const std::string bug = bug_of([&] { (rank_ == who ? other : sum)().wait(); });
      EXPECT_THAT(bug, AllOf(HasSubstr(str_cat("rank ", who, " issued ", name)),
                             HasSubstr(" issued host reduce 'loss' of 16 bytes on control, operation"),
                             HasSubstr("the operations do not match")));
    }
  }
  values[0] = 1;
  sum().wait();
  EXPECT_EQ(values[0], ranks_) << "all work together as before";
}

TEST_P(Control, ASumBeyond64BitsIsABugOnAllRanks) {
  if (ranks_ < 2) return;
  int64_t values[] = {1, rank_ == 0 ? std::numeric_limits<int64_t>::max() : 1};
  EXPECT_THAT(bug_of([&] { control_.reduce({.label = "tokens", .int_sums = values}).wait(); }),
              AllOf(HasSubstr("overflows 64 bits"), HasSubstr("host reduce 'tokens'")));
}

TEST_P(Control, ArgumentsThatDoNotFit) {
  std::string text = "four";
  for (const int root : {-1, ranks_}) {
    EXPECT_THAT(bug_of([&] { control_.broadcast({.text = text, .root = root}).wait(); }), HasSubstr("root"));
  }
  EXPECT_THAT(bug_of([&] { control_.reduce({.label = "a label of twenty-four c"}).wait(); }),
              HasSubstr("has more than 23 characters"));
  control_.reduce({.label = "a label of twenty-three"}).wait();
}

INSTANTIATE_TEST_SUITE_P(Kinds, Control, each_kind(), kind_name);

}  // namespace
}  // namespace ashlar::testing
