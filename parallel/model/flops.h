#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// N in "6 N flops per token": parameters in matrix products. The head counts once, tied or not; lookups (embedding,
/// positions), biases and norms do not count.
int64_t matmul_parameters(const ModelConfig& config);

/// Model flops of one token, forward and backward (a multiply-add is two flops; recomputation not counted).
/// attention_full: 12*L*H*D*T (for values of another width 6*L*H*(D+Dv)*T), with D of each layer. This is the
/// convention of PaLM, nanoGPT and torchtitan. attention_causal: half of it, since half of the scores are masked on
/// average (llm.c, Megatron). T is sequence_length. A layer with a window W < T counts its band, W keys per token, of
/// which W - W^2 / 2T are visible; a layer with chunks counts squares and triangles.
struct FlopsPerToken {
  double matmul = 0;  ///< 6 N
  double attention_full = 0;
  double attention_causal = 0;
  double total_full() const { return matmul + attention_full; }
  double total_causal() const { return matmul + attention_causal; }
};
FlopsPerToken flops_per_token(const ModelConfig& config, int64_t sequence_length);
/// Matrix flops of each layer.
std::vector<double> matmul_flops_of_layers(const ModelConfig& config);
/// FlopsPerToken::attention_causal by layer. Layers with windows cost less.
std::vector<double> attention_flops_of_layers(const ModelConfig& config, int64_t sequence_length);

/// Elements of keys and values of one sample's tokens: n_kv_heads * (head_dim + v_head_dim) per token, summed over
/// layers.
struct KvElements {
  int64_t all = 0;   ///< elements that Stage::make_cache allocates
  int64_t seen = 0;  ///< visible to the next token: at most W tokens in layers with a window W
};
KvElements kv_elements(const ModelConfig& config, int64_t tokens);

}  // namespace ashlar::model
