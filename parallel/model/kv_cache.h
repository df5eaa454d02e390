#pragma once

#include <vector>

#include "core/autograd/ctx.h"
#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Keys and values of the tokens seen so far, for generation: per layer k and v [B*capacity, G*D] in storage dtype.
struct KvCache {
  /// `kv_heads` are those of this rank (tensor::slices_of).
  KvCache(const Ctx& ctx, const ModelConfig& config, int64_t kv_heads, int64_t batch, int64_t max_tokens);

  int64_t B = 0;
  int64_t capacity = 0;
  int64_t length = 0;  ///< tokens held of each sample; advanced once per forward by the stage
  std::vector<Tensor> k, v;
};

}  // namespace ashlar::model
