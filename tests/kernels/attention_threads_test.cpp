#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/make_backend.h"
#include "tests/kernels/cases/attention_call.h"

namespace ashlar {
namespace {

TEST(CpuAttention, ThreadCountChangesNoBit) {
  const std::vector<testing::AttentionCase> cases = {
      {.B = 3, .T_q = 300, .T_kv = 300, .H = 1, .G = 1, .D = 16},
      {.B = 1, .T_q = 300, .T_kv = 300, .H = 4, .G = 1, .D = 64, .p = 0.1},
      {.B = 1, .T_q = 150, .T_kv = 220, .H = 2, .G = 1, .D = 12, .q_start = 70},
      {.B = 1, .T_q = 300, .T_kv = 300, .H = 4, .G = 1, .D = 16, .documents = true, .t5_buckets = 7},
      {.B = 1, .T_q = 150, .T_kv = 220, .H = 4, .G = 1, .D = 16, .p = 0.1, .window = 90, .causal = false}};
  for (const testing::AttentionCase& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const auto run = [&](int threads) {
      auto call = std::make_unique<testing::AttentionCall<float>>(c);
      call->under_test.make = [=] { return kernels::make_backend({.threads = threads}); };
      call->forward();
      call->backward();
      return call;
    };
    const auto one = run(1);
    for (const int threads : {2, 3, 7}) EXPECT_TRUE(one->same_bits(*run(threads))) << threads;
  }
}

}  // namespace
}  // namespace ashlar
