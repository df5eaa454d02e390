#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

/// How a router turns the logits of a row into scores s: the softmax over all experts, or the sigmoid of each logit.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid };
constexpr auto names_of(RouterScore) { return enum_names<RouterScore>("softmax", "sigmoid"); }

/// The value of a group of experts: the largest selection value of its experts, or the sum of the two largest.
enum class GroupScore : uint8_t { kMax, kTopTwo };
constexpr auto names_of(GroupScore) { return enum_names<GroupScore>("max", "top_two"); }

/// How experts are chosen and weighted, the same for all rows. E is the number of experts, k the number of choices of a
/// row.
///   choice   Each expert has a selection value v: s + selection_bias, if there is a selection bias or if several
///            groups are scored by kTopTwo; otherwise the logit, which has the order of s without ties by rounding.
///            The E experts form `groups` groups of consecutive experts, of which the top_groups with the largest
///            values take part (all if groups is 1; then group_score has no effect). The k experts with the largest v
///            are chosen, in descending order of v. Equal values go to the lower index. NaN counts as less than any
///            other value.
///   weights  w_j = scale * s_j / (max(sum of s over the chosen, sum_floor) + sum_eps) if renormalize, else scale *
///            s_j; then times expert_scale of the chosen expert, if present. A softmax renormalized without floor and
///            eps is computed from the chosen logits alone, so that it is exact even if all chosen scores underflow.
///            Where the divisor is 0, as for sigmoids that all underflow without floor and eps, it counts as 1: weights
///            and their gradients are 0, the limit of a small eps. If a logit of a row is NaN, all weights of the row
///            are NaN.
/// The selection bias changes the choice only, never a weight.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  bool renormalize = true;
  GroupScore group_score = GroupScore::kTopTwo;
  int64_t groups = 1;      ///< divides E
  int64_t top_groups = 1;  ///< 1 to groups; the chosen groups have at least k experts
  double sum_floor = 0, sum_eps = 0;
  double scale = 1;
  bool operator==(const RouterRule&) const = default;
};

/// Chooses k experts for each row and computes their weights (RouterRule). If `forced` is present, the choices are
/// those of `forced`, in its order.
struct RouteForward {
  ConstView logits;            ///< [N, E] accumulate dtype, read
  ConstView selection_bias{};  ///< [E] accumulate dtype, read, or absent
  ConstView expert_scale{};    ///< [E] storage or accumulate dtype, read, or absent
  ConstView forced{};          ///< [N, k] kInt32, read, or absent
  MutView choices;             ///< [N, k] kInt32, written
  MutView weights;             ///< [N, k] accumulate dtype, written
  RouterRule rule{};

  auto views() const { return std::tie(logits, selection_bias, expert_scale, forced, choices, weights); }
};

/// The gradient of the logits: of the weights of RouteForward, of the balance loss, and of the z-loss. The choice has
/// no gradient. p is the scores of a row divided by their sum over all E experts (for the softmax p = s; a sum of 0
/// counts as 1), lse is the log-sum-exp of the row's logits, and r = n / balance_rows. If a logit of a row is NaN, all
/// dlogits of the row are NaN, and so are the dexpert_scale of its choices; other rows are not affected. dlogits[n] is
/// the gradient, by the logits of row n, of
///   sum_j dweights[n, j] w_j + sum_e balance[r, e] p_e + inv_tokens * z_scale / 2 * lse^2
/// and dexpert_scale[e] (+)= sum of dweights[n, j] w_j / expert_scale[e] over the choices (n, j) of expert e, computed
/// without the division. The sum has the same bits for any thread count. inv_tokens is a field of StepScalars, or 1 if
/// `scalars` is absent.
struct RouteBackward {
  ConstView logits;          ///< [N, E] accumulate dtype, as in RouteForward
  ConstView expert_scale{};  ///< [E] storage or accumulate dtype, as in RouteForward
  ConstView choices;         ///< [N, k] kInt32, as written by RouteForward
  ConstView dweights;        ///< [N, k] accumulate dtype
  ConstView balance{};       ///< [ceil(N / balance_rows), E] accumulate dtype, or absent
  MutView dlogits;           ///< [N, E] accumulate dtype, written
  MutView dexpert_scale{};   ///< [E] accumulate dtype, written or accumulated (scale_mode), or absent
  ConstView scalars{};       ///< StepScalars in device memory, or absent
  GradMode scale_mode = GradMode::kAccumulate;
  int64_t balance_rows = 1;
  double z_scale = 0;
  RouterRule rule{};  ///< as in RouteForward

  auto views() const {
    return std::tie(logits, expert_scale, choices, dweights, balance, dlogits, dexpert_scale, scalars);
  }
};

/// Sums over the rows of each sequence s, which has sequence_rows consecutive rows (the last sequence may have fewer),
/// and over all rows. The order of a sum depends only on the shape.
struct RouterStatistics {
  ConstView logits;       ///< [N, E] accumulate dtype
  ConstView choices;      ///< [N, k] kInt32
  MutView counts;         ///< [S, E] fp64, written: number of choices of expert e, S = ceil(N / sequence_rows)
  MutView scores;         ///< [S, E] fp64, written: sum of p (defined at RouteBackward)
  MutView lse_squares{};  ///< [1] fp64, accumulated: sum of lse^2 over all rows; or absent
  MutView entropy{};      ///< [1] fp64, accumulated: sum of -sum_e p_e log p_e over all rows; or absent
  MutView all_counts{};   ///< [E] fp64, accumulated: sum of counts over all sequences; or absent
  RouterScore score = RouterScore::kSoftmax;
  int64_t sequence_rows = 1;

  auto views() const { return std::tie(logits, choices, counts, scores, lse_squares, entropy, all_counts); }
};

/// The balance loss of a layer and its gradient. f[s, e] is counts[s, e] / (sum of counts[s] over all experts), or 0 if
/// that sum is 0:
///   balance[s, e] = inv_tokens * factor * E * f[s, e]
///   loss         += E * loss_factor * sum over s and e of f[s, e] * scores[s, e]
/// `loss` is 1 at perfect balance if loss_factor is 1 / (number of rows that `scores` sums). If counts has one row and
/// scores has more, that row serves all of them.
struct BalanceLoss {
  ConstView counts;     ///< [S, E] or [1, E] fp64
  ConstView scores;     ///< [S, E] fp64
  MutView balance{};    ///< [S, E], or [1, E] like counts; accumulate dtype, written; or absent
  MutView loss;         ///< [1] fp64, accumulated
  ConstView scalars{};  ///< StepScalars in device memory; absent: inv_tokens is 1
  double factor = 0, loss_factor = 0;

  auto views() const { return std::tie(counts, scores, balance, loss, scalars); }
};

/// What the counts of a step change before the next step, in one layer. If clip.skip is set, nothing is changed.
///   selection_bias[e] += rate * sign(mean of counts - counts[e]), sign(0) = 0
///   previous_counts[e] = counts[e], rounded once
/// `counts` are whole numbers, of which the sign is exact. Source: Wang et al. 2024 (arXiv:2408.15664), algorithm 1.
struct BalanceUpdate {
  ConstView counts;           ///< [E] fp64
  MutView selection_bias{};   ///< [E] accumulate dtype, read and written, or absent
  MutView previous_counts{};  ///< [E] accumulate dtype, written, or absent
  ConstView clip;             ///< ClipState in device memory
  double rate = 0;

  auto views() const { return std::tie(counts, selection_bias, previous_counts, clip); }
};

}  // namespace ashlar
