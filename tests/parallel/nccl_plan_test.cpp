// Which calls of NCCL make up an operation.
#include "parallel/comm/nccl_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace ashlar::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = NcclCall::Kind;

class NcclPlan : public ::testing::Test {
 protected:
  std::array<float, 100> x_{}, y_{};
  MutView x(int64_t begin, int64_t end) { return {x_.data() + begin, DType::kFloat32, 1, end - begin, end - begin}; }
  MutView y(int64_t begin, int64_t end) { return {y_.data() + begin, DType::kFloat32, 1, end - begin, end - begin}; }
  NcclCall call(Kind kind, const void* send, void* recv, int64_t count, int peer = -1) {
    return {.kind = kind, .send = send, .recv = recv, .count = count, .dtype = DType::kFloat32, .peer = peer};
  }
};

TEST_F(NcclPlan, EqualPartsAreOneCall) {
  const std::vector<Range> parts = {{4, 8}, {8, 12}, {12, 16}};
  EXPECT_THAT(plan_nccl_calls(ReduceScatter{.in = x(0, 20), .out = y(0, 4), .parts = parts}, 1),
              ElementsAre(call(Kind::kReduceScatter, &x_[4], &y_[0], 4)));
  EXPECT_THAT(plan_nccl_calls(AllGather{.in = x(0, 4), .out = y(0, 20), .parts = parts}, 1),
              ElementsAre(call(Kind::kAllGather, &x_[0], &y_[4], 4)));
}

// The parts of a bucket: what the last one has more is a call of its own, to or from its rank.
TEST_F(NcclPlan, ALongerLastPartIsTwoCalls) {
  const std::vector<Range> parts = {{0, 4}, {4, 8}, {8, 15}};
  const ReduceScatter scatter{.in = x(0, 15), .out = y(0, 4), .parts = parts};
  EXPECT_THAT(plan_nccl_calls(scatter, 0),
              ElementsAre(call(Kind::kReduceScatter, &x_[0], &y_[0], 4), call(Kind::kReduce, &x_[12], nullptr, 3, 2)));
  const ReduceScatter in_place{.in = x(0, 15), .out = x(8, 15), .parts = parts};
  EXPECT_THAT(plan_nccl_calls(in_place, 2),
              ElementsAre(call(Kind::kReduceScatter, &x_[0], &x_[8], 4), call(Kind::kReduce, &x_[12], &x_[12], 3, 2)));
  const AllGather gather{.in = x(0, 4), .out = y(0, 15), .parts = parts};
  EXPECT_THAT(plan_nccl_calls(gather, 1),
              ElementsAre(call(Kind::kAllGather, &x_[0], &y_[0], 4), call(Kind::kBroadcast, &y_[12], &y_[12], 3, 2)));
  const AllGather of_last{.in = x(0, 7), .out = y(0, 15), .parts = parts};
  EXPECT_THAT(plan_nccl_calls(of_last, 2),
              ElementsAre(call(Kind::kAllGather, &x_[0], &y_[0], 4), call(Kind::kBroadcast, &x_[4], &y_[12], 3, 2)));
}

TEST_F(NcclPlan, OtherPartsAreACallEach) {
  const std::vector<Range> gap = {{0, 4}, {5, 9}, {9, 9}};
  EXPECT_THAT(plan_nccl_calls(ReduceScatter{.in = x(0, 9), .out = y(0, 4), .parts = gap}, 1),
              ElementsAre(call(Kind::kReduce, &x_[0], nullptr, 4, 0), call(Kind::kReduce, &x_[5], &y_[0], 4, 1)));
  EXPECT_THAT(plan_nccl_calls(AllGather{.in = x(0, 4), .out = y(0, 9), .parts = gap}, 1),
              ElementsAre(call(Kind::kBroadcast, &y_[0], &y_[0], 4, 0), call(Kind::kBroadcast, &x_[0], &y_[5], 4, 1)));
  const std::vector<Range> shorter_last = {{0, 4}, {4, 6}};
  EXPECT_THAT(plan_nccl_calls(ReduceScatter{.in = x(0, 6), .out = y(0, 2), .parts = shorter_last}, 1),
              ElementsAre(call(Kind::kReduce, &x_[0], nullptr, 4, 0), call(Kind::kReduce, &x_[4], &y_[0], 2, 1)));
}

TEST_F(NcclPlan, OnlyTheLastPartIsOneCall) {
  const std::vector<Range> parts = {{0, 0}, {0, 0}, {0, 5}};
  EXPECT_THAT(plan_nccl_calls(ReduceScatter{.in = x(0, 5), .out = y(0, 0), .parts = parts}, 0),
              ElementsAre(call(Kind::kReduce, &x_[0], nullptr, 5, 2)));
}

TEST_F(NcclPlan, NothingIsNoCall) {
  const std::vector<Range> parts = {{0, 0}, {0, 0}};
  EXPECT_THAT(plan_nccl_calls(AllReduce{.in = x(0, 0), .out = y(0, 0), .op = ReduceOp::kSum}, 0), IsEmpty());
  EXPECT_THAT(plan_nccl_calls(ReduceScatter{.in = x(0, 0), .out = y(0, 0), .parts = parts}, 0), IsEmpty());
  EXPECT_THAT(plan_nccl_calls(AllGather{.in = x(0, 0), .out = y(0, 0), .parts = parts}, 0), IsEmpty());
  EXPECT_THAT(plan_nccl_calls(Broadcast{.data = x(0, 0), .root = 1}, 0), IsEmpty());
  EXPECT_THAT(plan_nccl_calls(SendRecv{.send = x(0, 0), .to = 1, .recv = y(0, 3), .from = 1}, 0),
              ElementsAre(call(Kind::kRecv, nullptr, &y_[0], 3, 1)));
}

TEST_F(NcclPlan, BothSidesOfAMessageGoTogether) {
  EXPECT_THAT(plan_nccl_calls(SendRecv{.send = x(0, 2), .to = 1, .recv = y(0, 3), .from = 2}, 0),
              ElementsAre(call(Kind::kSend, &x_[0], nullptr, 2, 1), call(Kind::kRecv, nullptr, &y_[0], 3, 2)));
}

TEST_F(NcclPlan, AnAllToAllIsOneGroupOfSendsAndReceives) {
  const std::vector<Range> sent = {{1, 3}, {3, 3}, {4, 9}}, received = {{0, 2}, {2, 5}, {5, 5}};
  EXPECT_THAT(
      plan_nccl_calls(AllToAll{.send = x(0, 9), .recv = y(0, 6), .send_parts = sent, .recv_parts = received}, 0),
      ElementsAre(call(Kind::kSend, &x_[1], nullptr, 2, 0), call(Kind::kRecv, nullptr, &y_[0], 2, 0),
                  call(Kind::kRecv, nullptr, &y_[2], 3, 1), call(Kind::kSend, &x_[4], nullptr, 5, 2)));
}

}  // namespace
}  // namespace ashlar::comm
