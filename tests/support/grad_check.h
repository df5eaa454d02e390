#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar {

/// What the gradient checker varies: values on the device, fp64.
struct GradCheckProblem {
  std::vector<Tensor> inputs;    ///< become leaves of the tape, in order
  std::vector<Weight*> weights;  ///< their main_grad is compared
  /// Builds the result from the leaves; a pure function of values. It may instead return an undefined value and put
  /// its own scalar into `loss` (fused_linear_cross_entropy does).
  std::function<Var(const Ctx& ctx, const std::vector<Var>& leaves, double& loss)> build;
};

struct GradCheckResult {
  double worst = 0;         ///< largest |analytic - numeric| / max(1, |numeric|)
  std::string worst_where;  ///< "input 0, element 17: analytic .., numeric .."
  int64_t checked = 0;
};

/// Compares tape gradients of sum(result * R), R fixed and random, with central differences
/// (f(x+h) - f(x-h)) / 2h in fp64. At most `max_elements` elements of each tensor, spread evenly.
/// With h = 1e-5 the difference's own error is near 1e-9 for smooth functions of order one.
GradCheckResult check_gradients(const Ctx& ctx, const GradCheckProblem& problem, int64_t max_elements = 64,
                                double h = 1e-5);

}  // namespace ashlar
