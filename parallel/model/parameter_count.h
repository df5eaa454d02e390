#pragma once

#include <cstdint>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Number of parameters by component, for the whole model with padded vocabulary. Each parameter is in exactly one
/// field. V, C, H, G, D, F and L are as in ModelConfig; G and D may differ between layers. E = table_width(), D_v =
/// width of a head's values, P = number of rows of the learned position table.
struct ParameterCount {
  int64_t embedding = 0;    ///< V*E
  int64_t projections = 0;  ///< 2*E*C with embed_dim
  int64_t positions = 0;    ///< P*C of the learned table, or buckets*H of T5's, per layer or shared
  int64_t attention = 0;    ///< L * (C*H*D + C*G*(D + D_v) + H*D_v*C), or the matrices of latents (latent_attention.h);
                            ///< minus C*G*D_v without a value matrix (k_eq_v)
  /// (3 if gated, else 2) * C*F for each layer without experts or with moe.beside_ffn, plus the shared experts
  int64_t ffn = 0;
  int64_t experts = 0;  ///< (3 if gated, else 2) * C * moe.d_ff * moe.experts for each layer with experts
  int64_t routers = 0;  ///< routers, and gates of shared experts
  /// Gains and biases of all norms (blocks, queries and keys, latents, embedding, final), plus block.out_scalar (L),
  /// moe.router_norm and moe.expert_scale.
  int64_t norms = 0;
  /// Biases of qkv, attention output, FFN, experts and routers; attention sinks (L * H); scalars of xielu (L * 2).
  int64_t biases = 0;
  int64_t head = 0;       ///< V*E when untied
  int64_t head_bias = 0;  ///< V when bias.lm_head
  int64_t total() const {
    return embedding + projections + positions + attention + ffn + experts + routers + norms + biases + head +
           head_bias;
  }
  bool operator==(const ParameterCount&) const = default;
};
ParameterCount count_parameters(const ModelConfig& config);
/// Number of parameters that a token meets: the total without the experts that are not chosen.
int64_t active_parameters(const ModelConfig& config);
/// Number of elements of the attention matrices of one layer.
int64_t attention_matrices(const ModelConfig& config, int64_t layer);
/// Number of elements of the other matrices of one layer, by component.
struct FfnMatrices {
  int64_t dense = 0;    ///< the feed-forward network, and the shared expert
  int64_t experts = 0;  ///< all routed experts
  int64_t router = 0;   ///< the router and the gate of the shared expert
  int64_t active = 0;   ///< elements that a token meets: the above, with moe.top_k experts
};
FfnMatrices ffn_matrices(const ModelConfig& config, int64_t layer);

}  // namespace ashlar::model
