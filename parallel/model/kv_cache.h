#pragma once

#include <vector>

#include "core/tensor/tensor.h"

namespace ashlar::model {

/// Keys and values of the previous tokens of a stage, for generation; created by Stage::make_cache.
struct KvCache {
  int64_t B = 0;
  int64_t capacity = 0;
  int64_t length = 0;        ///< tokens per sample; advanced once per forward by the stage
  std::vector<Tensor> k, v;  ///< [B*capacity, G*D], [B*capacity, G*D_v], of the layer, in storage dtype; absent on
                             ///< other stages
};

}  // namespace ashlar::model
