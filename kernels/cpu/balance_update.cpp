// What the counts of experts in a step change: the selection bias, by the sign of the distance to the mean, and the
// counts for the next step. A few numbers for each expert.

#include "core/backend/routing.h"

#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/row_ops.h"

namespace ashlar::cpu {
namespace {

template <typename A>
void update_balance(const BalanceUpdate& a) {
  const int64_t E = a.counts.size();
  const double* counts = row_of<double>(a.counts, 0);
  const double total = std::accumulate(counts, counts + E, 0.0);
  const A rate = static_cast<A>(a.rate);
  for (int64_t e = 0; e < E && a.selection_bias; ++e) {
    const double scaled = counts[e] * static_cast<double>(E);  // compared with E times the mean
    A& bias = row_of<A>(a.selection_bias, 0)[e];
    if (scaled < total) bias += rate;
    if (scaled > total) bias -= rate;
  }
  for (int64_t e = 0; e < E && a.previous_counts; ++e) row_of<A>(a.previous_counts, 0)[e] = static_cast<A>(counts[e]);
}

}  // namespace

void CpuBackend::launch(const BalanceUpdate& args, Stream&) {
  if (struct_of<ClipState>(args.clip).skip != 0) return;
  const DType dtype = args.selection_bias ? args.selection_bias.dtype : args.previous_counts.dtype;
  dtype == DType::kFloat64 ? update_balance<double>(args) : update_balance<float>(args);
}

}  // namespace ashlar::cpu
