// Attention's rows at the end of their memory: a backend that watches its accesses, and one under the address
// sanitizer, shows what is read behind them even where nothing comes of it.
#include <gtest/gtest.h>

#include "tests/kernels/cases/attention_call.h"

namespace ashlar {
namespace {

class AttentionMemory : public ::testing::TestWithParam<test::BackendUnderTest> {};

/// The same numbers from rows with gaps and from rows that are as long as their columns, with no memory behind the
/// last.
template <typename S>
void check_rows_may_end(int64_t D, const test::BackendUnderTest& under_test) {
  SCOPED_TRACE(::testing::Message() << name_of(DTypeOf<S>::value) << " D" << D);
  constexpr int64_t kQueries = 9, kKeys = 75;
  testing::AttentionCall<S> loose(
      {.T_q = kQueries, .T_kv = kKeys, .H = 2, .G = 1, .D = D, .q_start = kKeys - kQueries});
  loose.under_test = under_test;
  loose.forward();
  loose.backward();
  const auto packed = [](const MutView& x) {
    test::DeviceVector<S> y(x.rows * x.cols);  // no more memory than that
    for (int64_t i = 0; i < std::ssize(y); ++i)
      y[i] = static_cast<const S*>(x.data)[i / x.cols * x.stride + i % x.cols];
    return y;
  };
  auto q = packed(loose.q_view(loose.qs)), k = packed(loose.k_view(loose.kvs)), v = packed(loose.v_view(loose.kvs)),
       dout = packed(loose.out_view(loose.dout));
  const auto out = loose.out, dq = loose.dqs, dkv = loose.dkvs;
  AttentionForward forward = loose.forward_args();
  forward.q = loose.view(q, 0, kQueries, 2 * D, 2 * D);
  forward.k = loose.view(k, 0, kKeys, D, D);
  forward.v = loose.view(v, 0, kKeys, D, D);
  loose.forward(forward);
  AttentionBackward backward = loose.backward_args(GradMode::kOverwrite);
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.dout = loose.view(dout, 0, kQueries, 2 * D, 2 * D);
  loose.backward(backward);
  const auto same = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(S)) == 0;
  };
  EXPECT_TRUE(same(loose.out, out));
  EXPECT_TRUE(same(loose.dqs, dq));
  EXPECT_TRUE(same(loose.dkvs, dkv));
}

// bf16 of 32 columns is read in vectors of 16 bytes once its rows are packed.
TEST_P(AttentionMemory, RowsMayEndWithTheirMemory) {
  check_rows_may_end<float>(20, GetParam());
  check_rows_may_end<BF16>(20, GetParam());
  check_rows_may_end<BF16>(32, GetParam());
  check_rows_may_end<double>(20, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionMemory, ::testing::ValuesIn(test::backends_under_test()),
                         [](const auto& at) { return at.param.name; });

}  // namespace
}  // namespace ashlar
