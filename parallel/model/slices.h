#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// A tensor rank's part of the dimensions that tensor parallelism splits.
struct Slices {
  nn::Extent heads;             ///< query heads
  nn::Extent kv_heads;          ///< KV heads; with more ranks than KV heads several ranks hold the same one
  nn::Extent ffn;               ///< of d_ff
  nn::Extent vocab;             ///< of the padded vocabulary
  bool kv_main_replica = true;  ///< this rank is the first that holds its KV heads
  uint32_t kv_grad_partial_axes = 0;
};

/// Every mesh.tensor that divides the heads, ascending: n_heads % tensor == 0, and n_kv_heads % tensor == 0 or
/// tensor % n_kv_heads == 0.
std::vector<int64_t> possible_tensor_sizes(const ModelConfig& config);

/// How many consecutive tensor ranks hold the same KV head: tensor / n_kv_heads, or 1 when there are enough heads. The
/// sub-group of the tensor axis that a mesh for this model needs.
int64_t kv_sharing_ranks(const ModelConfig& config, int64_t tensor);

/// Why a model cannot be cut into `size` slices: one text for each thing in the way, with its values and what would do.
/// Empty when it can: `size` is one of possible_tensor_sizes, and d_ff and the padded vocabulary divide by it.
std::vector<std::string> slicing_problems(const ModelConfig& config, int64_t size);

/// Splits heads, KV heads, d_ff and the padded vocabulary over `size` ranks; Bug when there are slicing_problems.
Slices slices_of(const ModelConfig& config, int64_t size, int64_t rank);

}  // namespace ashlar::model
