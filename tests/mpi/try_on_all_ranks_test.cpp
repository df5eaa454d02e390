// An error of any rank becomes one error of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>

#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "tests/mpi/communicators.h"
#include "tests/support/ranks/outcome.h"

namespace ashlar::testing {
namespace {

using comm::try_on_all_ranks;
using ::testing::HasSubstr;

class Together : public OnEachKind {
 protected:
  Outcome of(const std::function<void()>& part) {
    return outcome_of(control_, [&] { try_on_all_ranks(control_, part); });
  }
  std::string prefix(int rank) const {
    return str_cat("rank ", rank, " of ", ranks_, " on ", comm::Bootstrap::host_name(), ": ");
  }
};

TEST_P(Together, NobodyFails) {
  bool ran = false;
  EXPECT_EQ(of([&] { ran = true; }).code, ExitCode::kDone);
  EXPECT_TRUE(ran);
}

TEST_P(Together, OneFails) {
  for (int who = 0; who < ranks_; ++who) {
    const Outcome outcome = of([&] {
      if (rank_ == who) throw Error(ExitCode::kResource, "io", str_cat("disk ", who, " is full; [free] some"));
    });
    EXPECT_EQ(outcome.code, ExitCode::kResource);
    EXPECT_EQ(outcome.text, str_cat("[io] ", ranks_ > 1 ? prefix(who) : "", "disk ", who, " is full; [free] some"));
  }
}

TEST_P(Together, AllFailAlike) {
  const Outcome outcome = of([] { throw damaged_error("data", "damaged; restore it"); });
  EXPECT_EQ(outcome.code, ExitCode::kDamagedData);
  EXPECT_EQ(outcome.text, "[data] damaged; restore it");
}

TEST_P(Together, TheLowestSpeaksForThoseThatFailDifferently) {
  if (ranks_ < 3) return;
  const Outcome outcome = of([&] {
    if (rank_ == 0) return;
    throw Error(rank_ == 1 ? ExitCode::kInput : ExitCode::kResource, "io", str_cat("text ", rank_ % 2));
  });
  EXPECT_EQ(outcome.code, ExitCode::kInput);
  // Ranks 2, 4, ... say another text; rank 3, ... say the same.
  EXPECT_EQ(outcome.text, str_cat("[io] ", prefix(1), "text 1; ranks with other errors: ", (ranks_ - 1) / 2));
}

TEST_P(Together, NoMemoryIsAResourceError) {
  if (ranks_ == 1) {
    EXPECT_THROW(try_on_all_ranks(control_, [] { throw std::bad_alloc(); }), std::bad_alloc);
    return;
  }
  const Outcome outcome = of([&] {
    if (rank_ == ranks_ - 1) throw std::bad_alloc();
  });
  EXPECT_EQ(outcome.code, ExitCode::kResource);
  EXPECT_THAT(outcome.text, HasSubstr(str_cat("[memory] ", prefix(ranks_ - 1), "the system refused memory: ")));
}

TEST_P(Together, AnInnerOnePassesAsItIs) {
  const Outcome outcome = of([&] {
    try_on_all_ranks(control_, [&] {
      if (rank_ == ranks_ - 1) throw input_error("x", "wrong");
    });
    ADD_FAILURE() << "the inner one throws on all ranks";
  });
  EXPECT_EQ(outcome.text, str_cat("[x] ", ranks_ > 1 ? prefix(ranks_ - 1) : "", "wrong"));
}

TEST_P(Together, AnInnerOneOfSomeRanksIsSharedWithAll) {
  if (ranks_ < 2) return;
  const auto group = comm_->split({.color = rank_ == 0 ? 0 : 1, .key = rank_, .name = "group"});
  comm::ControlPlane control(*group, "control of a group");
  const Outcome outcome = of([&] {
    try_on_all_ranks(control, [&] {
      if (rank_ > 0) throw input_error("x", "wrong");
    });
  });
  EXPECT_EQ(outcome.text, str_cat("[x] ", prefix(1), "wrong"));
}

TEST_P(Together, APartMayCommunicate) {
  const Outcome outcome = of([&] {
    const int64_t sum = comm::sum_of(control_, int64_t{rank_});
    if (rank_ == ranks_ - 1) throw input_error("x", "sum ", sum);
  });
  EXPECT_THAT(outcome.text, HasSubstr(str_cat("sum ", ranks_ * (ranks_ - 1) / 2)));
}

TEST_P(Together, BugsPassAtOnce) {
  // All ranks have it, else the others would wait for the launcher.
  EXPECT_THROW(try_on_all_ranks(control_, [] { throw Bug("broken"); }), Bug);
  EXPECT_EQ(of([] { throw input_error("x", "later"); }).text, "[x] later");
}

INSTANTIATE_TEST_SUITE_P(Kinds, Together, each_kind(), kind_name);

}  // namespace
}  // namespace ashlar::testing
