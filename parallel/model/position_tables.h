#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Returns the slopes of all H query heads, times pos.alibi_scale; empty without ALiBi. With n = the largest power of
/// two <= H, the first n heads have 2^(-8k/n), k = 1 .. n; the other H - n heads have 2^(-8k/2n), k = 1, 3, 5 ...
/// (MPT's code makes the same list: it takes the 2nd, 4th, ... and then the 1st, 3rd, ... of the 2n slopes 2^(-8k/2n).)
/// Source: Press et al. 2022 (arXiv:2108.12409) and its code.
std::vector<double> alibi_slopes(const ModelConfig& config);
/// Returns the bucket of T5's relative bias in a decoder for each distance n = i - j, from 0 to the first distance in
/// the last bucket; all larger distances are in the last bucket. Empty if the model has no such bias. With E =
/// buckets/2 and D = t5_max_distance, the bucket is n for n < E, else min(E + floor(ln(n/E) / ln(D/E) * (buckets - E)),
/// buckets - 1). Rounding errors never change a bucket. Source: Raffel et al. 2020 (arXiv:1910.10683) section 2.1 and
/// Mesh TensorFlow's code for one-sided attention.
std::vector<int64_t> t5_buckets(const ModelConfig& config);
/// True if all layers share one table of T5's biases.
bool shares_t5_bias(const ModelConfig& config);
/// Returns the factor on queries at each position below `positions` (attn.temperature_*); empty if temperatures are
/// off.
std::vector<double> query_temperatures(const ModelConfig& config, int64_t positions);

}  // namespace ashlar::model
