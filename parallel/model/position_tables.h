#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Slopes of all query heads, times pos.alibi_scale; empty without ALiBi. n = the largest power of two <= H: 2^(-8k/n),
/// k = 1 .. n; the other H - n heads have 2^(-8k/2n), k = 1, 3, 5 ... (MPT's "2nd, 4th ... then 1st, 3rd ... of the
/// next power of two" gives the same list.) Source: Press et al. 2022 (arXiv:2108.12409) and its code.
std::vector<double> alibi_slopes(const ModelConfig& config);
/// The buckets of T5's relative bias for a decoder, for each distance n = i - j from 0 to the first distance in the
/// last bucket; all larger distances are in the last bucket. Empty if the model has no such bias. With E = buckets/2
/// and D = t5_max_distance: n below E, then min(E + floor(ln(n/E) / ln(D/E) * (buckets - E)), buckets - 1). Exact:
/// rounding never changes a bucket. Source: Raffel et al. 2020 (arXiv:1910.10683) section 2.1 and Mesh TensorFlow's
/// code, one-sided.
std::vector<int64_t> t5_buckets(const ModelConfig& config);
/// True if all layers share one table of T5's biases.
bool shares_t5_bias(const ModelConfig& config);
/// The factor on the query at each of the first positions (attn.temperature_*); empty if there is none.
std::vector<double> query_temperatures(const ModelConfig& config, int64_t positions);

}  // namespace ashlar::model
