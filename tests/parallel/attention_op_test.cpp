// The attention op: queries, keys and values in one value, two or three; keys and values of another source.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/ops/attention.h"
#include "kernels/make_backend.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/grad_check.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kB = 2, kT = 5, kKeys = 8, kH = 4, kG = 2, kD = 4, kD_v = 3;
constexpr int64_t kQ = kH * kD, kK = kG * kD, kV = kG * kD_v;
constexpr ValueInfo kLinearInfo{.op = "linear", .placement = Placement::kColumnsSplit};

class AttentionOp : public ::testing::Test {
 protected:
  AttentionOp() : backend_(kernels::make_backend({.threads = 1})), stream_(backend_->make_stream()) {}

  Tensor random(int64_t rows, int64_t cols, uint64_t seed) {
    const Tensor t = ctx_.empty(DType::kFloat64, {rows, cols});
    backend_->random_fill({.dst = t.mut_view(), .scale = 1, .seed = seed, .global_cols = cols}, *stream_);
    return t;
  }
  static ops::AttentionOptions options(int64_t keys, const Mask& mask) {
    return {
        .B = kB, .T = kT, .T_kv = keys, .H = kH, .G = kG, .D = kD, .D_v = kD_v, .mask = mask, .scores = {.scale = 0.7}};
  }
  static Var info(Var x) {
    x.info = kLinearInfo;
    return x;
  }
  /// Of queries and of keys and values in two values.
  GradCheckResult gradients_of(const ops::AttentionOptions& o) {
    GradCheckProblem problem;
    problem.inputs = {random(kB * kT, kQ, 1), random(kB * kKeys, kK + kV, 2)};
    problem.build = [&](const Ctx& ctx, const std::vector<Var>& x, double&) {
      return ops::attention(ctx, {info(x[0]), info(x[1])}, o);
    };
    return check_gradients(ctx_, problem);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Ctx ctx_{.backend = *backend_, .stream = *stream_, .dtype = DType::kFloat64, .scalars = {}};
};

TEST_F(AttentionOp, TakesOneValueTwoOrThreeWithTheSameBits) {
  const Tensor qkv = random(kB * kT, kQ + kK + kV, 3);
  const auto run = [&](const std::vector<std::pair<int64_t, int64_t>>& columns) {
    Tape tape(*backend_, *stream_);
    Ctx ctx = ctx_;
    ctx.tape = &tape;
    std::vector<Var> inputs;
    for (const auto& [begin, width] : columns) inputs.push_back(tape.leaf(qkv.column_range(begin, width), kLinearInfo));
    const Var y = ops::attention(ctx, inputs, options(0, {}));
    tape.seed(y, random(kB * kT, kH * kD_v, 4));
    tape.backward();
    std::vector<std::vector<double>> all = {host_values(ctx, y.value)};
    std::vector<double> gradients;  // by row, then by column of qkv
    for (int64_t row = 0; row < kB * kT; ++row) {
      for (const Var& input : inputs) {
        const std::vector<double> d = host_values(ctx, tape.leaf_grad(input));
        gradients.insert(gradients.end(), d.begin() + row * input.cols(), d.begin() + (row + 1) * input.cols());
      }
    }
    all.push_back(gradients);
    return all;
  };
  const auto one = run({{0, kQ + kK + kV}});
  EXPECT_EQ(run({{0, kQ}, {kQ, kK + kV}}), one);
  EXPECT_EQ(run({{0, kQ}, {kQ, kK}, {kQ + kK, kV}}), one);
}

TEST_F(AttentionOp, GradientsOfAnotherSourceEqualFiniteDifferences) {
  for (const Mask& mask : {Mask{.causal = false}, Mask{.causal = false, .window = 4, .q_start = 1}, Mask{.q_start = 3},
                           Mask{.window = 3, .q_start = 4, .kv_start = 2}}) {
    const GradCheckResult r = gradients_of(options(kKeys, mask));
    EXPECT_GT(r.checked, 100);
    EXPECT_LT(r.worst, 1e-7) << r.worst_where;
  }
}

// As an encoder's rows are read by every layer of a decoder: their gradients are added up.
TEST_F(AttentionOp, ASourceThatIsReadTwiceGetsBothGradients) {
  ops::AttentionOptions o = options(kKeys, {.causal = false});
  o.D_v = kD;  // the result is as wide as queries
  GradCheckProblem problem;
  problem.inputs = {random(kB * kT, kQ, 1), random(kB * kKeys, 2 * kK, 2)};
  problem.build = [&](const Ctx& ctx, const std::vector<Var>& x, double&) {
    const Var first = ops::attention(ctx, {info(x[0]), info(x[1])}, o);
    return ops::attention(ctx, {first, info(x[1])}, o);
  };
  const GradCheckResult r = check_gradients(ctx_, problem);
  EXPECT_LT(r.worst, 1e-7) << r.worst_where;
}

TEST_F(AttentionOp, ASourceWithoutAGradientLeavesThatOfTheQueries) {
  const Var memory = info({.value = random(kB * kKeys, kK + kV, 2)});
  GradCheckProblem problem;
  problem.inputs = {random(kB * kT, kQ, 1)};
  problem.build = [&](const Ctx& ctx, const std::vector<Var>& x, double&) {
    return ops::attention(ctx, {info(x[0]), memory}, options(kKeys, {.causal = false}));
  };
  EXPECT_LT(check_gradients(ctx_, problem).worst, 1e-7);
}

TEST_F(AttentionOp, RefusesOtherShapes) {
  const auto refused = [&](const std::vector<Var>& inputs, int64_t keys) {
    EXPECT_THROW(ops::attention(ctx_, inputs, options(keys, {})), Bug);
  };
  const Var q = info({.value = random(kB * kT, kQ, 1)}), kv = info({.value = random(kB * kKeys, kK + kV, 2)});
  refused({q, kv}, kKeys + 1);
  refused({q, kv}, 0);
  refused({info({.value = random(kB * kT, kQ + kK + kV, 1)})}, kKeys);
  refused({q, Var{.value = kv.value}}, kKeys);  // whose columns are not split
}

}  // namespace
}  // namespace ashlar::testing
