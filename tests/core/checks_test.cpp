#include "core/backend/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/core/fake_backend.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;

/// Calls go through the checks of the contract whatever the backend is: this one has no kernel at all.
class Checks : public ::testing::Test {
 protected:
  template <typename Call>
  static std::string message(const Call& call) {
    try {
      call();
    } catch (const std::exception& e) {
      return e.what();
    }
    return "accepted";
  }
  MutView matrix(int64_t rows, int64_t cols, DType dtype = DType::kFloat32) {
    return {memory_.data(), dtype, rows, cols, cols};
  }

  alignas(16) std::array<double, 64> memory_{};
  testing::FakeBackend backend_;
  SynchronousStream stream_;
};

TEST_F(Checks, WhatFitsTheContractReachesTheBackend) {
  EXPECT_THAT(message([&] {
                backend_.linear_forward({.x = matrix(2, 3), .w = matrix(4, 3), .bias = {}, .y = matrix(2, 4)}, stream_);
              }),
              HasSubstr("[fake] no such kernel"));
}

TEST_F(Checks, WhatDoesNotFitIsABugThatNamesCallAndView) {
  const auto linear = [&](ConstView x, ConstView w, ConstView bias, MutView y) {
    return message([&] { backend_.linear_forward({.x = x, .w = w, .bias = bias, .y = y}, stream_); });
  };
  EXPECT_THAT(linear(matrix(2, 3), matrix(4, 5), {}, matrix(2, 4)), HasSubstr("linear_forward: x is [2, 3]"));
  EXPECT_THAT(linear(matrix(2, 3), {}, {}, matrix(2, 4)), HasSubstr("linear_forward"));
  EXPECT_THAT(linear(matrix(2, 3), matrix(4, 3, DType::kBFloat16), {}, matrix(2, 4)), HasSubstr("w holds bf16"));
  EXPECT_THAT(linear(matrix(2, 3), matrix(4, 3), matrix(1, 3), matrix(2, 4)), HasSubstr("bias is [1, 3]"));
  EXPECT_THAT(linear(matrix(2, 3, DType::kInt32), matrix(4, 3), {}, matrix(2, 4)), HasSubstr("storage dtype"));
  MutView narrow = matrix(2, 3);
  narrow.stride = 2;
  EXPECT_THAT(linear(narrow, matrix(4, 3), {}, matrix(2, 4)), HasSubstr("x has stride 2"));
  EXPECT_THAT(message([&] {
                backend_.embedding_forward({.ids = matrix(1, 2), .table = matrix(4, 3), .out = matrix(2, 3)}, stream_);
              }),
              HasSubstr("ids holds fp32, expected int32"));
  EXPECT_THAT(message([&] {
                backend_.loss_reduce({.row_max = matrix(1, 2),
                                      .row_sum = matrix(1, 2),
                                      .target_logit = matrix(1, 2),
                                      .shape = {.targets = matrix(1, 2, DType::kInt32)},
                                      .stats = matrix(1, 8, DType::kUInt8)},
                                     stream_);
              }),
              HasSubstr("expected uint8 [48], got uint8 [8]"));
}

TEST_F(Checks, ATableOfBiasesComesWithItsBuckets) {
  EXPECT_THAT(
      message([&] {
        backend_.attention_forward(
            {.q = matrix(2, 4),
             .k = matrix(2, 4),
             .v = matrix(2, 4),
             .out = matrix(2, 4),
             .lse = matrix(1, 2),
             .shape = {.scores = {.t5_bias = matrix(1, 4)}, .B = 1, .T_q = 2, .T_kv = 2, .H = 1, .G = 1, .D = 4}},
            stream_);
      }),
      HasSubstr("attention_forward: expected t5_bias and t5_buckets both, or neither"));
}

TEST_F(Checks, AttentionThatIsNotCausalNeedsBothEndsOfWhatItHas) {
  const auto call = [&](const Mask& mask, const ScoreChange& scores) {
    return message([&] {
      backend_.attention_forward({.q = matrix(2, 4),
                                  .k = matrix(3, 4),
                                  .v = matrix(3, 4),
                                  .out = matrix(2, 4),
                                  .lse = matrix(1, 2),
                                  .shape = {.mask = mask,
                                            .scores = scores,
                                            .B = 1,
                                            .T_q = 2,
                                            .T_kv = 3,
                                            .H = 1,
                                            .G = 1,
                                            .D = 4,
                                            .q_batch_stride = 8,
                                            .kv_batch_stride = 12}},
                                 stream_);
    });
  };
  const ConstView documents = matrix(1, 2, DType::kInt32), table = matrix(3, 1);
  EXPECT_THAT(call({.causal = false, .doc_start = documents}, {}),
              HasSubstr("attention_forward: doc_end is absent, expected it with doc_start where attention is not"));
  EXPECT_THAT(call({.doc_start = documents, .doc_end = documents}, {}),
              HasSubstr("doc_end is given, expected it with"));
  EXPECT_THAT(call({.causal = false}, {.t5_bias = table, .t5_buckets = matrix(1, 4, DType::kInt32)}),
              HasSubstr("t5_buckets has 4 entries, expected an odd number where attention is not causal"));
  EXPECT_THAT(call({}, {.alibi_slopes = {.rows = 1, .cols = 1, .stride = 1}}), HasSubstr("alibi_slopes is absent"))
      << "described, and never given memory";
}

TEST_F(Checks, SkipReachesNothing) {
  EXPECT_EQ(message([&] { backend_.dropout_backward({.dy = {}, .ddelta = {}, .mode = GradMode::kSkip}, stream_); }),
            "accepted");
}

TEST_F(Checks, AStructIsReadBackAsItWasSet) {
  const StepScalars scalars{.lr = 0.5, .philox_step = 7};
  const SetStruct set = SetStruct::of(scalars, matrix(1, sizeof(StepScalars), DType::kUInt8));
  check("set_struct", set);
  std::memcpy(set.dst.data, set.bytes.data(), static_cast<size_t>(set.size));
  EXPECT_EQ(struct_of<StepScalars>(ConstView(set.dst)).philox_step, 7U);
  EXPECT_THROW(struct_of<ClipState>(set.dst), Bug);
  ConstView odd = set.dst;
  odd.data = static_cast<const char*>(odd.data) + 4;
  EXPECT_THROW(struct_of<StepScalars>(odd), Bug);
}

}  // namespace
}  // namespace ashlar
