// The gradient of a router. With share q_j = s_j / D of a chosen expert (D = 1 without renormalize), g_j the gradient
// of q_j, b the gradient of p from the balance loss, and all sums over one row:
//   x_j    = q_j (g_j - m)           times 1 - s_j for the sigmoid;  m = sum g_j q_j if D depends on s, else 0
//   softmax  dl_e = p_e (b_e - sum b p - sum x + z lse) + x_e
//   sigmoid  dl_e = p_e (1 - s_e) (b_e - sum b p) + z lse softmax_e + x_e
// where sum x is 0 if the softmax is over the chosen logits alone. A warp processes a row, reads E logits a few times
// (mostly from cache) and writes E gradients.
// dexpert_scale: the warps store q_j's part of each choice. Blocks then add them for 1024 choices and 256 experts each,
// and a last kernel adds the sums of these blocks.

#include "core/backend/routing.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/router_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int kChoices = 1024;  // number of choices of a block of expert_scale_partials

template <typename A>
struct RouteGradient {
  Rows<const A> logits;
  ExpertScales<A> expert_scale;
  const int32_t* choices;
  const A* dweights;
  Rows<const A> balance;
  Rows<A> dlogits;
  A* scale_terms;  ///< [rows, k] or null
  const StepScalars* scalars;
  double z_scale;
  int64_t rows, balance_rows;
  int experts, k;
  WeightRule<A> rule;
};

/// A warp computes  1. softmax, p and their sums over the experts  2. the sums over the choices  3. the gradient
/// without x  4. x, which it adds at the chosen experts.
template <typename A>
__global__ void __launch_bounds__(kThreads, 4) route_backward_kernel(RouteGradient<A> a) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int64_t n = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (n >= a.rows) return;
  const A *const row = a.logits[n], *const dweights = a.dweights + n * a.k;
  const int32_t* const chosen = a.choices + n * a.k;
  const A* const balance = a.balance ? a.balance[n / a.balance_rows] : nullptr;
  A* const dlogits = a.dlogits[n];

  // 1. all experts
  const RowSoftmax<A> softmax(row, a.experts, lane);
  const A inverse = a.rule.sigmoid && balance != nullptr ? A{1} / sum_sigmoids(row, a.experts, lane) : A{0};
  A balanced = 0;  // sum b p
  if (balance != nullptr) {
    for (int e = lane; e < a.experts; e += 32) {
      const A p = a.rule.sigmoid ? Sigmoid<A>(row[e]).score * inverse : softmax.p(row[e]);
      balanced = fused(balance[e], p, balanced);
    }
    balanced = warp_reduce(balanced, Add());
  }
  const double z_scale = a.z_scale * (a.scalars != nullptr ? a.scalars->inv_tokens : 1.0);
  const A z = z_scale == 0 ? A{0} : static_cast<A>(z_scale) * softmax.lse();

  // 2. chosen experts
  const ChosenShares<A> shares(a.rule, row, chosen, a.k, softmax, lane);
  const auto share_gradient = [&](int j) { return dweights[j] * a.rule.scale * a.expert_scale[chosen[j]]; };
  A mean = 0;  // m
  if (shares.sum_in_divisor) {
    for (int j = lane; j < a.k; j += 32) mean = fused(share_gradient(j), shares(row[chosen[j]]), mean);
    mean = warp_reduce(mean, Add());
  }
  const auto x = [&](int j) {
    const A logit = row[chosen[j]], value = shares(logit) * (share_gradient(j) - mean);
    return a.rule.sigmoid ? value * Sigmoid<A>(logit).rest : value;
  };
  A total = 0;  // sum x
  if (!a.rule.sigmoid && !a.rule.alone) {
    for (int j = lane; j < a.k; j += 32) total += x(j);
    total = warp_reduce(total, Add());
  }

  // 3. the gradient without x
  for (int e = lane; e < a.experts; e += 32) {
    const A logit = row[e], excess = balance != nullptr ? balance[e] - balanced : A{0};
    if (a.rule.sigmoid) {
      const Sigmoid<A> s(logit);
      dlogits[e] = fused(s.score * inverse * s.rest, excess, softmax.p(logit) * z);
    } else {
      dlogits[e] = softmax.p(logit) * (excess - total + z);
    }
  }
  __syncwarp();  // lanes add to what others have stored

  // 4. x
  for (int j = lane; j < a.k; j += 32) {
    dlogits[chosen[j]] += x(j);
    if (a.scale_terms != nullptr) {
      a.scale_terms[n * a.k + j] = dweights[j] * a.rule.scale * shares(row[chosen[j]]);
    }
  }
}

/// partial[part, e] = the sum of the terms of expert e among kChoices choices. A thread adds the terms of one expert,
/// in order.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    expert_scale_partials_kernel(const int32_t* choices, const A* terms, int64_t count, int experts, A* partial) {
  ASHLAR_SHARED(int32_t, expert_of, [kChoices]);
  ASHLAR_SHARED(A, term_of, [kChoices]);
  const int64_t first = int64_t{blockIdx.x} * kChoices;
  const auto size = static_cast<int>(min(count - first, int64_t{kChoices}));
  for (auto i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    expert_of[i] = choices[first + i];
    term_of[i] = terms[first + i];
  }
  __syncthreads();
  const auto expert = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (expert >= experts) return;
  A sum = 0;
  for (int i = 0; i < size; ++i) {
    if (expert_of[i] == expert) sum += term_of[i];
  }
  partial[int64_t{blockIdx.x} * experts + expert] = sum;
}

/// dscale[e] (+)= the sum over the parts.
template <typename A>
__global__ void __launch_bounds__(kSumLanes* kSumWarps)
    expert_scale_sums_kernel(Rows<const A> partial, int64_t parts, int64_t experts, bool vectors, A* dscale,
                             bool accumulate) {
  sum_columns(partial, 0, parts, int64_t{blockIdx.x} * kSumLanes * kWidth<A>, experts, vectors,
              [&](int64_t e, A sum) { dscale[e] = accumulate ? dscale[e] + sum : sum; });
}

}  // namespace

void CudaBackend::launch(const RouteBackward& args, Stream& stream) {
  with_accumulate(args.logits.dtype, [&](auto t) {
    using A = decltype(t);
    const int64_t E = args.logits.cols, choices = args.choices.size();
    const bool wants_scale = args.dexpert_scale && args.scale_mode != GradMode::kSkip;
    const int64_t parts = wants_scale ? div_up(choices, kChoices) : 0;
    auto* const terms = static_cast<A*>(
        parts > 0 ? scratch(stream, (parts * kChoices + parts * E) * static_cast<int64_t>(sizeof(A))) : nullptr);
    if (args.dlogits.size() > 0) {
      const RouteGradient<A> gradient{.logits = rows_of<A>(args.logits),
                                      .expert_scale = ExpertScales<A>::of(args.expert_scale),
                                      .choices = static_cast<const int32_t*>(args.choices.data),
                                      .dweights = static_cast<const A*>(args.dweights.data),
                                      .balance = rows_of<A>(args.balance),
                                      .dlogits = rows_of<A>(args.dlogits),
                                      .scale_terms = terms,
                                      .scalars = static_cast<const StepScalars*>(args.scalars.data),
                                      .z_scale = args.z_scale,
                                      .rows = args.logits.rows,
                                      .balance_rows = args.balance_rows,
                                      .experts = static_cast<int>(E),
                                      .k = static_cast<int>(args.choices.cols),
                                      .rule = WeightRule<A>::of(args.rule)};
      run_kernel(
          stream,
          {.name = "route_backward", .grid = blocks_for(args.logits.rows, kThreads / 32), .block = unsigned{kThreads}},
          route_backward_kernel<A>, gradient);
    }
    if (!wants_scale) return;
    A* const partial = terms + parts * kChoices;
    if (parts > 0) {
      run_kernel(stream,
                 {.name = "expert_scale_partials",
                  .grid = {static_cast<unsigned>(parts), blocks_for(E, kThreads)},
                  .block = unsigned{kThreads}},
                 expert_scale_partials_kernel<A>, static_cast<const int32_t*>(args.choices.data),
                 static_cast<const A*>(terms), choices, static_cast<int>(E), partial);
    }
    const Rows<const A> sums{partial, E};
    run_kernel(
        stream,
        {.name = "expert_scale_sums", .grid = blocks_for(E, kSumLanes * kWidth<A>), .block = {kSumLanes, kSumWarps}},
        expert_scale_sums_kernel<A>, sums, parts, E, E % kWidth<A> == 0, args.dexpert_scale.as<A>(),
        args.scale_mode == GradMode::kAccumulate);
  });
}

}  // namespace ashlar::ASHLAR_DEV
