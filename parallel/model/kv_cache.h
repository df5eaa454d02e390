#pragma once

#include <vector>

#include "core/ops/attention.h"

namespace ashlar::model {

/// The KV cache of a stage for generation: keys and values of the previous tokens. Created by Stage::make_cache.
struct KvCache {
  int64_t B = 0;
  int64_t capacity = 0;
  int64_t length = 0;  ///< number of tokens stored per sample; the stage advances it once per forward
  /// One tensor per layer of the model, in storage dtype: k [B*capacity, G*D], v [B*capacity, G*D_v], where G is the
  /// number of KV heads on this rank, and D and D_v are the widths of keys and values. Absent for layers of other
  /// stages.
  std::vector<Tensor> k, v;

  ops::AttentionCache of_layer(int64_t layer) const {
    return {.k = k[layer], .v = v[layer], .capacity = capacity, .length = length};
  }
};

}  // namespace ashlar::model
