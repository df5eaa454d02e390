#include "parallel/model/position_tables.h"

#include <cmath>

namespace ashlar::model {

std::vector<double> alibi_slopes(const ModelConfig& c) {
  if (c.pos.type != PosType::kAlibi) return {};
  int64_t below = 1;  // the largest power of two that is at most n_heads
  while (2 * below <= c.n_heads) below *= 2;
  const auto slope = [&](int64_t k, int64_t n) {
    return c.pos.alibi_scale * std::exp2(-8.0 * static_cast<double>(k) / static_cast<double>(n));
  };
  std::vector<double> slopes;
  for (int64_t k = 1; k <= below; ++k) slopes.push_back(slope(k, below));
  for (int64_t k = 1; std::ssize(slopes) < c.n_heads; k += 2) slopes.push_back(slope(k, 2 * below));
  return slopes;
}

bool shares_t5_bias(const ModelConfig& c) { return c.pos.type == PosType::kT5Bias && c.pos.t5_shared; }

std::vector<int64_t> t5_buckets(const ModelConfig& c) {
  if (c.pos.type != PosType::kT5Bias) return {};
  const int64_t buckets = c.pos.t5_num_buckets, exact = buckets / 2;
  const double ratio = static_cast<double>(c.pos.t5_max_distance) / static_cast<double>(exact);
  // Returns the first distance of a bucket: its lower bound, rounded up to an integer. A bound that exceeds an integer
  // only by a rounding error is rounded to that integer, as in exact arithmetic.
  const auto first = [&](int64_t bucket) {
    if (bucket < exact) return bucket;
    const double share = static_cast<double>(bucket - exact) / static_cast<double>(buckets - exact);
    const double bound = static_cast<double>(exact) * std::pow(ratio, share);
    return static_cast<int64_t>(std::ceil(bound * (1 - 1e-13)));
  };
  std::vector<int64_t> of_distance;
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    // A bucket whose two bounds are less than 1 apart may be empty.
    const int64_t end = bucket + 1 < buckets ? first(bucket + 1) : first(bucket) + 1;
    while (std::ssize(of_distance) < end) of_distance.push_back(bucket);
  }
  return of_distance;
}

std::vector<double> query_temperatures(const ModelConfig& c, int64_t positions) {
  if (c.attn.temperature_positions == 0) return {};
  std::vector<double> factors;
  for (int64_t t = 0; t < positions; ++t) {
    const auto turns = static_cast<double>((t + c.attn.temperature_offset) / c.attn.temperature_positions);
    factors.push_back(1 + c.attn.temperature_beta * std::log1p(turns));
  }
  return factors;
}

}  // namespace ashlar::model
