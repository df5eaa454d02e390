#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// N of "6 N flops a token": parameters that enter a matrix product. The head counts once, tied or not;
/// lookups (embedding, positions), biases and norms do not count.
int64_t matmul_parameters(const ModelConfig& config);

/// Model flops of one token, forward and backward (a multiply-add is two flops; recomputation not counted).
/// attention_full: 12*L*H*D*T (with values of their own width 6*L*H*(D+Dv)*T), D of each layer, the convention of PaLM,
/// nanoGPT and torchtitan; attention_causal: half of it, since on average half of the scores are masked (llm.c,
/// Megatron). T is sequence_length. A layer with a window W < T counts its band, W keys a token, of which W - W^2 / 2T
/// are seen; one with chunks their squares and triangles.
struct FlopsPerToken {
  double matmul = 0;  ///< 6 N
  double attention_full = 0;
  double attention_causal = 0;
  double total_full() const { return matmul + attention_full; }
  double total_causal() const { return matmul + attention_causal; }
};
FlopsPerToken flops_per_token(const ModelConfig& config, int64_t sequence_length);
/// Of the matrices of each layer.
std::vector<double> matmul_flops_of_layers(const ModelConfig& config);
/// attention_causal by layer: a window costs less.
std::vector<double> attention_flops_of_layers(const ModelConfig& config, int64_t sequence_length);

/// Keys and values of one sample's tokens, in elements: n_kv_heads * (head_dim + v_head_dim) a token, summed over
/// layers.
struct KvElements {
  int64_t all = 0;   ///< what generation here keeps (Stage::make_cache)
  int64_t seen = 0;  ///< of layers with a window W at most W tokens: what the next token can see
};
KvElements kv_elements(const ModelConfig& config, int64_t tokens);

}  // namespace ashlar::model
