// Attention compiled without contraction has the bits of the emulated kernels: forward, both passes of the backward,
// every width of the tiles, documents, dropout, caches, and the kernels without tensor cores.
#include <gtest/gtest.h>

#include <vector>

#if defined(ASHLAR_PTX_DIR)

#include "tests/kernels/cases/attention_call.h"

namespace ashlar::test {
namespace {

using testing::AttentionCase;

template <typename S>
void expect_same_bits(const std::vector<AttentionCase>& cases) {
  std::vector<BackendUnderTest> pair;
  for (BackendUnderTest& b : backends_under_test()) {
    if (b.bits == "without contraction") pair.push_back(std::move(b));
  }
  ASSERT_EQ(pair.size(), 2U);
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    testing::AttentionCall<S> first(c), second(c);
    first.under_test = pair[0];
    second.under_test = pair[1];
    for (auto* call : {&first, &second}) {
      call->forward();
      call->backward();
    }
    EXPECT_TRUE(first.same_bits(second));
  }
}

std::vector<AttentionCase> few() {
  return {
      {.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 12, .p = 0.3},
      {.T_q = 5, .T_kv = 75, .H = 2, .G = 1, .D = 16, .q_start = 70},
      {.T_q = 66, .T_kv = 66, .H = 1, .G = 1, .D = 16, .documents = true},
      {.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16, .align = 8, .window = 20, .softcap = 2, .alibi = true},
      {.T_q = 40, .T_kv = 40, .H = 1, .G = 1, .D = 16, .chunk = 16, .sinks = true, .D_v = 12},
      {.T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16, .p = 0.2, .align = 8, .t5_buckets = 7},
      {.T_q = 40, .T_kv = 70, .H = 2, .G = 1, .D = 16, .align = 8, .window = 20, .alibi = true, .causal = false},
      {.T_q = 66, .T_kv = 40, .H = 1, .G = 1, .D = 16, .documents = true, .t5_buckets = 6, .causal = false},
  };
}

TEST(AttentionBits, Bf16) {
  std::vector<AttentionCase> cases = few();
  for (const int64_t D : {16, 32, 64, 96, 128, 256}) {
    cases.push_back({.T_q = 33, .T_kv = 33, .H = 1, .G = 1, .D = D, .p = D == 64 ? 0.2 : 0, .align = 8});
  }
  cases.push_back({.T_q = 9, .T_kv = 9, .H = 1, .G = 1, .D = 258});  // without tensor cores
  expect_same_bits<BF16>(cases);
}
TEST(AttentionBits, Fp32) { expect_same_bits<float>(few()); }
TEST(AttentionBits, Fp64) { expect_same_bits<double>(few()); }

}  // namespace
}  // namespace ashlar::test

#endif
