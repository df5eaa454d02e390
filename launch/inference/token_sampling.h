#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::inference {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0 = always the most likely token
  int64_t top_k = 0;         ///< keep the k most likely; 0 = all
  double top_p = 1.0;  ///< then keep the smallest set of probability >= p (Holtzman et al. 2020, arXiv:1904.09751)
  uint64_t seed = 0;
};

/// Returns the distribution over ids [0, vocab) after temperature, top-k and top-p; it sums to one.
std::vector<double> sampling_distribution(std::span<const double> logits, int64_t vocab,
                                          const SamplingOptions& options);

/// Draws an id by inversion with a uniform number in [0, 1).
int32_t draw(std::span<const double> distribution, double uniform);

}  // namespace ashlar::inference
