#include "tests/support/grad_check.h"

#include <algorithm>
#include <cmath>

#include "core/base/philox.h"

namespace ashlar {

namespace {

std::vector<double> to_host(const Ctx& ctx, const Tensor& t) {
  ASHLAR_CHECK(t.dtype() == DType::kFloat64 && t.contiguous(), "the gradient checker works on contiguous fp64 tensors");
  std::vector<double> host(t.size());
  ctx.backend.read(t.view(), host.data(), ctx.stream);
  return host;
}

// The seed R of the result: fixed numbers of order one.
std::vector<double> projection(int64_t n) {
  std::vector<double> r(n);
  for (int64_t i = 0; i < n; ++i) r[i] = Philox::normal_at(20240229, 1, static_cast<uint64_t>(i));
  return r;
}

double scalar_of(const Ctx& ctx, const GradCheckProblem& problem) {
  std::vector<Var> leaves;
  for (const Tensor& t : problem.inputs) leaves.push_back({.value = t});
  double loss = 0;
  const Var result = problem.build(ctx, leaves, loss);
  if (!result.value) return loss;
  const std::vector<double> y = to_host(ctx, result.value), r = projection(result.value.size());
  for (size_t i = 0; i < y.size(); ++i) loss += y[i] * r[i];
  return loss;
}

}  // namespace

GradCheckResult check_gradients(const Ctx& ctx, const GradCheckProblem& problem, int64_t max_elements, double h) {
  // 1. analytic gradients
  std::vector<Tensor> grads;
  {
    Tape tape(ctx.backend, ctx.stream);
    Ctx recording = ctx;
    recording.tape = &tape;
    for (Weight* w : problem.weights) w->contributions = 0;
    std::vector<Var> leaves;
    for (const Tensor& t : problem.inputs) leaves.push_back(tape.leaf(t));
    double ignored = 0;
    const Var result = problem.build(recording, leaves, ignored);
    if (result.value) {
      const std::vector<double> r = projection(result.value.size());
      const Tensor seed = ctx.empty(DType::kFloat64, result.shape());
      ctx.backend.write(r.data(), seed.mut_view(), ctx.stream);
      tape.seed(result, seed);
    }
    tape.backward();
    for (const Var& leaf : leaves) grads.push_back(tape.leaf_grad(leaf));
  }
  // 2. differences, one element at a time
  Ctx silent = ctx;
  silent.tape = nullptr;
  GradCheckResult out;
  const auto check = [&](const Tensor& value, const Tensor& grad, const std::string& name) {
    std::vector<double> x = to_host(ctx, value);
    const std::vector<double> analytic = grad ? to_host(ctx, grad) : std::vector<double>(x.size(), 0.0);
    const int64_t n = static_cast<int64_t>(x.size()), count = std::min(n, max_elements);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = k * n / count;
      const double kept = x[i];
      const auto set = [&](double moved) {
        x[i] = moved;
        ctx.backend.write(x.data(), value.mut_view(), ctx.stream);
      };
      const auto at = [&](double moved) {
        set(moved);
        return scalar_of(silent, problem);
      };
      const double up = at(kept + h), down = at(kept - h);
      const double numeric = (up - down) / (2 * h);
      set(kept);
      const double error = std::abs(analytic[i] - numeric) / std::max(1.0, std::abs(numeric));
      ++out.checked;
      if (!(error <= out.worst)) {
        out.worst = error;
        out.worst_where = str_cat(name, ", element ", i, ": analytic ", analytic[i], ", numeric ", numeric);
      }
    }
  };
  for (size_t i = 0; i < problem.inputs.size(); ++i) check(problem.inputs[i], grads[i], str_cat("input ", i));
  for (size_t i = 0; i < problem.weights.size(); ++i) {
    Weight& w = *problem.weights[i];
    check(w.read(ctx.stream), w.contributions > 0 ? w.main_grad : Tensor(), str_cat("weight ", i));
  }
  return out;
}

}  // namespace ashlar
