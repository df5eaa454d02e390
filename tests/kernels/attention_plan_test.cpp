#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/attention/items.h"

namespace ashlar::cpu::attention {
namespace {

TEST(AttentionPlan, TakesBothWaysOfCutting) {
  const AttentionShape shape{.B = 1, .T_q = 300, .T_kv = 300, .H = 4, .G = 1, .D = 64};
  EXPECT_EQ(plan_backward(shape, DType::kFloat32, 1, detect_cpu().isa).kind, Plan::Kind::kFused);
  EXPECT_EQ(plan_backward(shape, DType::kFloat32, 2, detect_cpu().isa).kind, Plan::Kind::kTwoPass);
}

TEST(AttentionPlan, CoversEveryQueryAndKeyOnce) {
  for (const int threads : {1, 2, 5, 16}) {
    for (const int64_t T : {1, 64, 65, 300, 1030}) {
      const AttentionShape s{.mask = {.q_start = 9}, .B = 2, .T_q = T, .T_kv = T + 9, .H = 4, .G = 2, .D = 16};
      std::vector<int> out(s.B * s.H * T), dq(out), dkv(s.B * s.G * s.T_kv);
      const auto forward = plan_forward(s, DType::kFloat32, threads, detect_cpu().isa);
      for (int64_t i = 0; i < forward.num_items; ++i) {
        const auto item = forward.item(i);
        for (int64_t t = item.t_begin; t < item.t_end; ++t) ++out[(item.b * s.H + item.h_begin) * T + t];
      }
      const auto backward = plan_backward(s, DType::kFloat32, threads, detect_cpu().isa);
      for (int64_t i = 0; i < backward.num_items; ++i) {
        const auto item = backward.item(i);
        for (int64_t h = item.h_begin; item.want_dq && h < item.h_end; ++h) {
          EXPECT_EQ(item.key_begin, 0);
          EXPECT_EQ(item.key_end, s.T_kv);
          for (int64_t t = item.t_begin; t < item.t_end; ++t) ++dq[(item.b * s.H + h) * T + t];
        }
        for (int64_t j = item.key_begin; item.want_dkv && j < item.key_end; ++j) {
          EXPECT_EQ(item.h_end - item.h_begin, s.H / s.G);
          EXPECT_EQ(item.t_end - item.t_begin, T);
          ++dkv[(item.b * s.G + item.h_begin / 2) * s.T_kv + j];
        }
      }
      EXPECT_THAT(out, ::testing::Each(1));
      EXPECT_THAT(dq, ::testing::Each(1));
      EXPECT_THAT(dkv, ::testing::Each(1));
    }
  }
}

}  // namespace
}  // namespace ashlar::cpu::attention
