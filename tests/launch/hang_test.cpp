// Who is named when nobody gets on: from the pages of ranks.
#include "launch/watch/hang_suspects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "launch/watch/flight_recorder.h"

namespace ashlar::watch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tensor 2 x pipeline 2: ranks 0 and 1 are stage 0.
class Hang : public ::testing::Test {
 protected:
  Hang() : pages_(4) {
    for (int r = 0; r < 4; ++r) {
      RankPage& page = pages_[static_cast<size_t>(r)];
      page = {.rank = r, .ranks = 4, .pid = 100 + r, .at = {r / 2, 0, 0, 0, r % 2}, .waiting = 1, .step = 7};
      std::string("node7").copy(page.host.data(), 10);
      issue(r, {.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 64, .number = 3},
            "tensor");
    }
  }
  void issue(int rank, const comm::OperationInfo& info, const std::string& name) {
    RankPage& page = pages_[static_cast<size_t>(rank)];
    OperationRecord& record = page.recent[page.operations++ % RankPage::kRecords];
    record = {.info = info};
    name.copy(record.communicator.data(), record.communicator.size() - 1);
  }
  std::vector<Suspect> suspects(const std::string& states = "SSSS") const {
    std::vector<RankSnapshot> ranks;
    for (size_t r = 0; r < pages_.size(); ++r) ranks.push_back({.page = pages_[r], .state = states[r]});
    return find_suspects(ranks);
  }
  std::vector<RankPage> pages_;
};

TEST_F(Hang, AStoppedRankIsNamedBeforeAnythingElse) {
  pages_[2].phase = Phase::kBackward;
  pages_[2].micro_batch = 1;
  pages_[3].waiting = 0;
  const auto found = suspects("SSTS");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text, "rank 2 of 4 on node7 is stopped (state T) in backward of micro-batch 1");
  EXPECT_EQ(suspects("DSTS").size(), 2u) << "all who may be the reason";
}

TEST_F(Hang, WhoWaitsForAFileSystemIsNamedWithTheFile) {
  pages_[1].phase = Phase::kSaving;
  pages_[2].waiting = 0;
  const std::vector<RankSnapshot> ranks = {
      {.page = pages_[0]},
      {.page = pages_[1], .state = 'D', .stall = "its saver thread is in fsync of x"},
      {.page = pages_[2]}};
  const auto found = find_suspects(ranks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text, "rank 1 of 4 on node7 in saving: its saver thread is in fsync of x");
}

TEST_F(Hang, AMismatchSaysWhoIssuedWhat) {
  issue(2, {.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 128, .number = 4}, "tensor");
  issue(3, {.kind = comm::OperationKind::kAllGather, .size = 128, .number = 4}, "tensor");
  const auto found = suspects();
  ASSERT_EQ(found.size(), 2u) << "of two nobody can say who is right";
  EXPECT_EQ(found[0].text,
            "rank 2 of 4 on node7 issued all_reduce sum fp32[128] on tensor, operation 4, where rank 3 issued "
            "all_gather fp32[128] on tensor, operation 4");
  EXPECT_EQ(found[1].rank, 3);
}

TEST_F(Hang, OfManyTheOddOneIsNamed) {
  for (int r = 0; r < 4; ++r)
    issue(r, {.kind = comm::OperationKind::kAllGather, .size = r == 1 ? 12 : 8, .number = 9}, "world");
  const auto found = suspects();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, AllOf(HasSubstr("rank 1 of 4"), HasSubstr("fp32[12] on world"), HasSubstr("fp32[8]")));
}

TEST_F(Hang, OtherGroupsAndMessagesAreNotCompared) {
  issue(0, {.kind = comm::OperationKind::kSend, .size = 5, .peer = 1, .number = 0}, "pipeline");
  issue(2, {.kind = comm::OperationKind::kRecv, .size = 5, .peer = 0, .number = 0}, "pipeline");
  for (const int r : {2, 3}) issue(r, {.kind = comm::OperationKind::kAllReduce, .size = 9, .number = 4}, "tensor");
  EXPECT_TRUE(suspects().empty()) << "stage 1 is further on than stage 0, as it may";
}

TEST_F(Hang, RanksOfOtherMachinesHaveOperationsOfTheirOwn) {
  for (int r = 0; r < 4; ++r) {
    pages_[static_cast<size_t>(r)].machine = static_cast<uint64_t>(r / 2);
    issue(r, {.kind = comm::OperationKind::kBroadcast, .size = 8 + r / 2, .peer = 0, .number = 0}, "machine");
  }
  EXPECT_TRUE(suspects().empty());
  issue(3, {.kind = comm::OperationKind::kBroadcast, .size = 9, .peer = 0, .number = 1}, "machine");
  ASSERT_EQ(suspects().size(), 1u);
  EXPECT_EQ(suspects()[0].rank, 2) << "within one machine they are compared";
}

TEST_F(Hang, TheChecksOfAGroupAreComparedWithinIt) {
  for (int r = 0; r < 4; ++r)
    issue(r, {.kind = comm::OperationKind::kSendRecv, .size = 3, .number = 0}, "tensor check");
  for (const int r : {2, 3}) issue(r, {.kind = comm::OperationKind::kAllReduce, .number = 1}, "tensor check");
  EXPECT_TRUE(suspects().empty()) << "stage 1 is further on than stage 0, as it may";
}

TEST_F(Hang, ReplicasAreComparedWithinTheirStage) {
  for (int r = 0; r < 4; ++r) {
    pages_[static_cast<size_t>(r)].at = {r / 2, r % 2, 0, 0, 0};
    for (const char* name : {"replica", "replica+tensor"})
      issue(r, {.kind = comm::OperationKind::kReduceScatter, .size = 8 + r / 2, .number = 0}, name);
  }
  EXPECT_TRUE(suspects().empty()) << "stages have buckets of different sizes";
  issue(2, {.kind = comm::OperationKind::kReduceScatter, .size = 5, .number = 1}, "replica");
  issue(3, {.kind = comm::OperationKind::kReduceScatter, .size = 6, .number = 1}, "replica");
  EXPECT_EQ(suspects().size(), 2u) << "one bucket has one size on its replicas";
}

// Replica 2 x expert 2: ranks 0 and 2 hold the same experts.
TEST_F(Hang, ReplicasOfExpertsAreComparedAmongThemselves) {
  for (int r = 0; r < 4; ++r) {
    pages_[static_cast<size_t>(r)].at = {0, r / 2, 0, r % 2, 0};
    issue(r, {.kind = comm::OperationKind::kReduceScatter, .size = 8 + r % 2, .number = 0}, "replica");
    issue(r, {.kind = comm::OperationKind::kAllToAll, .size = r, .number = r < 2 ? 0U : 1U}, "expert");
    issue(r, {.kind = comm::OperationKind::kAllReduce, .size = 7, .number = 0}, "replica+expert");
  }
  EXPECT_TRUE(suspects().empty()) << "a rank with more experts has larger buckets";
  issue(2, {.kind = comm::OperationKind::kBarrier, .number = 2}, "expert");
  issue(3, {.kind = comm::OperationKind::kAllToAll, .number = 2}, "expert");
  EXPECT_EQ(suspects().size(), 2u);
}

TEST_F(Hang, RanksMaySendDifferentCountsInAnAllToAll) {
  for (const int r : {0, 1})
    issue(r, {.kind = comm::OperationKind::kAllToAll, .size = 3 + r, .recv_size = 4 - r, .number = 4}, "tensor");
  for (const int r : {2, 3}) issue(r, {.kind = comm::OperationKind::kAllToAll, .size = 9, .number = 4}, "tensor");
  for (const Suspect& suspect : suspects()) EXPECT_NE(suspect.suspicion, Suspicion::kMismatch) << suspect.text;
}

TEST(ListRanks, NamesRanges) {
  const auto text = [](const std::vector<int32_t>& ranks) { return list_ranks(ranks); };
  EXPECT_EQ(text({3}), "rank 3");
  EXPECT_EQ(text({0, 1, 2, 3, 8}), "ranks 0-3, 8");
  EXPECT_EQ(text({1, 3, 4}), "ranks 1, 3-4");
}

TEST_F(Hang, WhoDoesNotWaitIsTheReason) {
  pages_[1].waiting = 0;
  pages_[1].phase = Phase::kReadingData;
  const auto found = suspects();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text, "rank 1 of 4 on node7, for which others wait, is in reading data");
}

TEST_F(Hang, WhoIsBehindIsTheReasonWhenAllWait) {
  issue(3, {.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 64, .number = 4}, "tensor");
  const auto found = suspects();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, AllOf(HasSubstr("rank 2 of 4 on node7 is behind"), HasSubstr("rank 3 has issued")));
}

// Over NCCL devices wait for each other, and each rank for its own.
TEST_F(Hang, WhoIsBehindIsTheReasonWhenNobodyWaits) {
  for (RankPage& page : pages_) page.waiting = 0;
  EXPECT_EQ(suspects().size(), 4U) << "nobody is behind";
  issue(3, {.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 64, .number = 4}, "tensor");
  const auto found = suspects();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, AllOf(HasSubstr("rank 2 of 4 on node7 is behind"), HasSubstr("rank 3 has issued")));
}

TEST_F(Hang, WhatARankIsAtStandsInTheReport) {
  pages_[0].phase = Phase::kForward;
  pages_[0].micro_batch = 2;
  pages_[0].phase_since_ms = 1000;
  issue(0, {.kind = comm::OperationKind::kBarrier, .number = 5}, "world");
  const std::string text =
      describe_hung({.page = pages_[0], .threads = "main thread: state S\nreader thread: state D"}, 63'000, "> ");
  EXPECT_EQ(text,
            "> [rank 0 of 4 on node7] step 7, forward of micro-batch 2 for 62 s, waits for other ranks, last operation "
            "barrier on world, operation 5, operations in total: 2\n"
            ">     before that: all_reduce sum fp32[64] on tensor, operation 3\n"
            ">     main thread: state S\n"
            ">     reader thread: state D\n");
}

TEST_F(Hang, TheLimitGrowsWithTheLongestStep) {
  EXPECT_EQ(hang_limit_ms(pages_, 60), 60'000);
  pages_[2].longest_step_ms = 5'000;
  EXPECT_EQ(hang_limit_ms(pages_, 0.5), 5'500);
  for (RankPage& page : pages_) page.progress_ms = 100;
  pages_[3].progress_ms = 900;
  EXPECT_EQ(quiet_ms(pages_, 1000), 100);
  pages_[3].state = RankState::kFinished;
  EXPECT_EQ(quiet_ms(pages_, 1000), 900) << "who has finished does not count";
}

}  // namespace
}  // namespace ashlar::watch
