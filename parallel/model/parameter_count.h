#pragma once

#include <cstdint>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Elements by component, of the whole model with padded vocabulary. The fields before `total()` partition the
/// parameters. V*E + P*C + L*(attention + FFN + biases + norms) + final norm + head, E = C unless embed_dim is set. G
/// and D are those of each layer.
struct ParameterCount {
  int64_t embedding = 0;    ///< V*E
  int64_t projections = 0;  ///< 2*E*C with embed_dim
  int64_t positions = 0;    ///< learned table, or T5's: buckets*H, per layer or shared
  int64_t attention = 0;    ///< L * (C*H*D + C*G*(D + D_v) + H*D_v*C), or the matrices of latents (latent_attention.h);
                            ///< minus C*G*D_v without a value matrix (k_eq_v)
  int64_t ffn = 0;          ///< L * (3 gated | 2) * C*F
  int64_t norms = 0;      ///< of blocks, queries and keys, latents, the embedding, and the final one: gains and biases;
                          ///< plus the factors on blocks' outputs (L)
  int64_t biases = 0;     ///< qkv, attention output, FFN, attention sinks (L * H), scalars of xielu (L * 2)
  int64_t head = 0;       ///< V*E when untied
  int64_t head_bias = 0;  ///< V when bias.lm_head
  int64_t total() const {
    return embedding + projections + positions + attention + ffn + norms + biases + head + head_bias;
  }
  bool operator==(const ParameterCount&) const = default;
};
ParameterCount count_parameters(const ModelConfig& config);
/// Elements of the matrices of one layer.
int64_t attention_matrices(const ModelConfig& config, int64_t layer);
int64_t ffn_matrices(const ModelConfig& config);

}  // namespace ashlar::model
