#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Returns the router's logits x w^T + bias [N, E] for x [N, C], w [E, C] and bias [E] or null. They are computed in
/// the accumulate dtype from copies of x and w in that dtype, and so are their gradients. x must have the placement
/// "partial gradient", since a tensor rank computes only a part of each expert; so the gradients of w and bias are
/// partial too.
/// `w` and `bias` must outlive the tape.
Var router_logits(const Ctx& ctx, const Var& x, Weight& w, Weight* bias);

/// Balance loss and router z-loss of a layer, which add to the gradient of the logits. The means are over the tokens of
/// the step (StepScalars::inv_tokens in ctx.scalars).
struct BalanceOptions {
  int64_t sequence_rows = 1;       ///< rows of a sequence
  ConstView previous_counts{};     ///< [E] fp64 or accumulate dtype: counts of the previous step; absent: the counts of
                                   ///< each sequence
  double factor = 0;               ///< factor of the balance loss in the objective
  double z_factor = 0;             ///< factor of the mean of lse^2 in the objective
  double loss_factor = 1;          ///< factor of the sum over rows that is added to `loss`
  MutView loss{}, z{}, entropy{};  ///< [1] fp64, accumulated, or absent: sums over rows of BalanceLoss, of lse^2 and of
                                   ///< the entropy of p
  MutView counts{};                ///< [E] fp64, accumulated, or absent: number of choices of each expert
  bool adds_gradient = true;  ///< true on one tensor rank only, since the ranks' gradients of the logits are summed

  bool active() const { return factor != 0 || z_factor != 0 || loss || z || entropy || counts; }
};

struct RouteOptions {
  int64_t top_k = 1;
  RouterRule rule{};
  ConstView selection_bias{};      ///< [E] accumulate dtype, or absent
  Weight* expert_scale = nullptr;  ///< [E], or null
  Tensor forced{};                 ///< [N, top_k] kInt32: choices to use, or undefined
  BalanceOptions balance{};
};

struct Routing {
  Tensor choices;  ///< [N, k] kInt32
  Var weights;     ///< [N, k] accumulate dtype, placement "partial gradient"
};

/// Chooses experts and computes their weights (RouteForward). Backward adds the gradients of the balance loss and the
/// z-loss to that of the weights.
Routing route(const Ctx& ctx, const Var& logits, const RouteOptions& options);

}  // namespace ashlar::ops
