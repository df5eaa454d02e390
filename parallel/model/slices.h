#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A tensor rank's part of the dimensions that tensor parallelism splits.
struct Slices {
  nn::Extent heads;     ///< query heads
  nn::Extent kv_heads;  ///< KV heads; with more ranks than KV heads several ranks hold the same one
  nn::Extent ffn;       ///< of d_ff
  nn::Extent vocab;     ///< of the padded vocabulary
  nn::TensorAxes kv_axes = nn::kTensorCut;
};

/// Every mesh.tensor that divides the heads, ascending: n_heads % tensor == 0, and n_kv_heads % tensor == 0 or
/// tensor % n_kv_heads == 0, of each kind of layer.
std::vector<int64_t> possible_tensor_sizes(const ModelConfig& config);

/// Why a model cannot be cut into `size` slices: one text for each thing in the way, with its values and what would do.
/// Empty when it can: `size` is one of possible_tensor_sizes, and d_ff and the padded vocabulary divide by it.
std::vector<std::string> slicing_problems(const ModelConfig& config, int64_t size);

/// Splits heads, the KV heads of model.n_kv_heads, d_ff and the padded vocabulary over `size` ranks; Bug when there are
/// slicing_problems.
Slices slices_of(const ModelConfig& config, int64_t size, int64_t rank);
/// The same with the KV heads of one layer.
Slices slices_of(const ModelConfig& config, int64_t size, int64_t rank, int64_t layer);

}  // namespace ashlar::model
