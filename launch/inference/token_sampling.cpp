#include "launch/inference/token_sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ashlar::inference {

std::vector<double> sampling_distribution(std::span<const double> logits, int64_t vocab, const SamplingOptions& o) {
  std::vector<int32_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(vocab, 0.0);
  if (o.temperature == 0) {
    p[ids[0]] = 1;
    return p;
  }
  const int64_t k = o.top_k > 0 ? std::min(o.top_k, vocab) : vocab;
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += p[ids[i]] = std::exp((logits[ids[i]] - logits[ids[0]]) / o.temperature);
  double reached = 0;
  int64_t kept = 0;
  while (kept < k && (kept == 0 || reached < o.top_p * sum)) reached += p[ids[kept++]];
  for (int64_t i = 0; i < vocab; ++i) p[ids[i]] = i < kept ? p[ids[i]] / reached : 0;
  return p;
}

int32_t draw(std::span<const double> distribution, double uniform) {
  int32_t last = 0;
  double below = 0;
  for (size_t i = 0; i < distribution.size(); ++i) {
    if (distribution[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    below += distribution[i];
    if (uniform < below) return last;
  }
  return last;  // rounding may leave the sum slightly below one
}

}  // namespace ashlar::inference
