#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A tensor rank's part of the dimensions that tensor parallelism shards.
struct Slices {
  nn::DimShard heads;     ///< query heads
  nn::DimShard kv_heads;  ///< KV heads; with more ranks than KV heads, several ranks hold the same head
  nn::DimShard vocab;     ///< rows of the padded vocabulary
  nn::TensorAxes kv_axes = nn::kTensorSharded;
};

/// Returns the values of mesh.tensor that can shard the heads, in ascending order: n_heads % tensor == 0, and
/// (n_kv_heads % tensor == 0 or tensor % n_kv_heads == 0) in layers with and without full attention.
std::vector<int64_t> possible_tensor_sizes(const ModelConfig& config);

/// Returns why a model cannot be sharded over `size` ranks: one text per problem, with values and a fix. Empty if the
/// model can be sharded: `size` is one of possible_tensor_sizes, and divides the padded vocabulary and those of d_ff,
/// moe.d_ff (unless tensor ranks hold whole experts) and moe.shared_d_ff that a layer has.
std::vector<std::string> slicing_problems(const ModelConfig& config, int64_t size);

/// Shards heads, the KV heads of model.n_kv_heads and the padded vocabulary over `size` ranks. Throws Bug if the model
/// cannot be sharded in this way (slicing_problems).
Slices slices_of(const ModelConfig& config, int64_t size, int64_t rank);
/// Variant of slices_of that shards the KV heads of one layer (layer_heads) instead of model.n_kv_heads.
Slices slices_of(const ModelConfig& config, int64_t size, int64_t rank, int64_t layer);

}  // namespace ashlar::model
