#pragma once

#include <span>

#include "launch/plan/device.h"

namespace ashlar::plan {

/// A measured product: flops, number of terms it sums, seconds.
struct ProductSample {
  double flops = 0, terms = 0, seconds = 0;
};
/// A measured message: bytes over the link in one direction, latencies that it waits for, seconds.
struct LinkSample {
  double bytes = 0, latencies = 1, seconds = 0;
};

/// Sets `sustained` and `half_terms` such that the relative errors of the samples' times have the least sum of squares;
/// half_terms is at least 0. Needs samples with at least two numbers of terms.
void fit_products(std::span<const ProductSample> samples, DtypeRates& rates);
/// Returns the highest rate and the lowest latency of the samples: other load on a machine only makes messages slower,
/// and slows those of several ranks so much that a mean of sizes would say little.
Link fastest_link(std::span<const LinkSample> samples);

}  // namespace ashlar::plan
