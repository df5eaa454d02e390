#include "parallel/model/parameter_count.h"

#include "core/base/error.h"

namespace ashlar::model {

namespace {

int64_t norm_vectors(NormAffine affine) {
  switch (affine) {
    case NormAffine::kNone: return 0;
    case NormAffine::kScale: return 1;
    case NormAffine::kScaleBias: return 2;
  }
  throw Bug("NormAffine out of range");
}

/// Number of rows of the matrices that compute the latents.
int64_t latent_rows(const ModelConfig& c) { return c.attn.q_rank + c.attn.kv_rank + c.rope.dims; }

int64_t latent_norm_elements(const ModelConfig& c) { return c.latent() ? c.attn.q_rank + c.attn.kv_rank : 0; }

/// Number of elements of the gains and biases of the norms of queries and keys of a layer.
int64_t qk_norm_elements(const ModelConfig& c, int64_t layer) {
  if (!qk_norm_has_gain(c) || !has_qk_norm(c, layer)) return 0;
  const LayerHeads heads = layer_heads(c, layer);
  const int64_t D = heads.head_dim;
  const int64_t gains = c.qk_norm.kind == QkNorm::kHead ? 2 * D : c.n_heads * D + heads.k_width();
  return (c.qk_norm.bias ? 2 : 1) * gains;
}

/// Number of elements of the biases of a feed-forward network, or of an expert, of this width.
int64_t network_biases(const ModelConfig& c, int64_t width) {
  return c.bias.ffn && width > 0 ? (c.ffn.gated ? 2 : 1) * width + c.d_model : 0;
}
/// Number of elements of its matrices.
int64_t network_matrices(const ModelConfig& c, int64_t width) { return (c.ffn.gated ? 3 : 2) * c.d_model * width; }

int64_t ffn_biases(const ModelConfig& c, int64_t layer) {
  if (!c.has_experts(layer)) return network_biases(c, c.d_ff);
  return c.moe.experts * network_biases(c, c.moe.d_ff) + network_biases(c, c.moe.shared_d_ff) +
         (c.moe.beside_ffn ? network_biases(c, c.d_ff) : 0) + (c.moe.router_bias ? c.moe.experts : 0);
}

/// Number of elements of the norms that a layer with experts has besides those of its block, and of moe.expert_scale.
int64_t expert_norm_elements(const ModelConfig& c, int64_t layer) {
  if (!c.has_experts(layer)) return 0;
  return (c.moe.beside_ffn ? 3 * norm_vectors(c.norm.affine) * c.d_model : 0) + (c.moe.router_norm ? c.d_model : 0) +
         (c.moe.expert_scale ? c.moe.experts : 0);
}

}  // namespace

int64_t attention_matrices(const ModelConfig& c, int64_t layer) {
  const LayerHeads heads = layer_heads(c, layer);
  const int64_t out = c.n_heads * heads.v_head_dim * c.d_model;
  if (c.latent()) {
    const int64_t q_in = c.attn.q_rank > 0 ? c.attn.q_rank : c.d_model;
    const int64_t kv = c.attn.kv_rank * c.n_heads * (c.head_dim - c.rope.dims + heads.v_head_dim);
    return latent_rows(c) * c.d_model + q_in * c.q_width() + kv + out;
  }
  const int64_t values = heads.values ? heads.v_width() : 0;
  return c.d_model * (c.n_heads * heads.head_dim + heads.k_width() + values) + out;
}

FfnMatrices ffn_matrices(const ModelConfig& c, int64_t layer) {
  if (!c.has_experts(layer)) return {.dense = network_matrices(c, c.d_ff), .active = network_matrices(c, c.d_ff)};
  const int64_t expert = network_matrices(c, c.moe.d_ff);
  const int64_t beside = c.moe.beside_ffn ? network_matrices(c, c.d_ff) : 0;
  FfnMatrices n{.dense = network_matrices(c, c.moe.shared_d_ff) + beside,
                .experts = c.moe.experts * expert,
                .router = c.d_model * (c.moe.experts + (c.moe.shared_gate ? 1 : 0))};
  n.active = n.dense + c.moe.top_k * expert + n.router;
  return n;
}

ParameterCount count_parameters(const ModelConfig& c) {
  ParameterCount n;
  n.embedding = c.vocab_padded() * c.table_width();
  n.projections = c.embed_dim ? 2 * *c.embed_dim * c.d_model : 0;
  n.positions = c.pos.type == PosType::kLearned ? (c.pos.max_positions + c.pos.learned_offset) * c.d_model : 0;
  if (c.pos.type == PosType::kT5Bias)
    n.positions = (c.pos.t5_shared ? 1 : c.n_layers) * c.pos.t5_num_buckets * c.n_heads;
  const int64_t norms = c.n_layers * norms_per_block(c) + (c.norm.final ? 1 : 0) + (c.norm.embed ? 1 : 0);
  n.norms = norms * norm_vectors(c.norm.affine) * c.d_model +
            c.n_layers * (latent_norm_elements(c) + (c.block.out_scalar ? 1 : 0));
  int64_t bias = c.bias.attn_out ? c.d_model : 0;
  bias += c.attn.sinks ? c.n_heads : 0;
  bias += c.ffn.act == Activation::kXielu ? 2 : 0;
  n.biases = c.n_layers * bias;
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const LayerHeads heads = layer_heads(c, layer);
    n.attention += attention_matrices(c, layer);
    const FfnMatrices ffn = ffn_matrices(c, layer);
    n.ffn += ffn.dense;
    n.experts += ffn.experts;
    n.routers += ffn.router;
    n.biases += ffn_biases(c, layer);
    n.norms += qk_norm_elements(c, layer) + expert_norm_elements(c, layer);
    if (c.bias.qkv && c.latent()) n.biases += latent_rows(c);
    if (c.bias.qkv && !c.latent())
      n.biases += c.n_heads * heads.head_dim + heads.k_width() + (heads.values ? heads.v_width() : 0);
  }
  n.head = c.tied ? 0 : c.vocab_padded() * c.table_width();
  n.head_bias = c.bias.lm_head ? c.vocab_padded() : 0;
  return n;
}

int64_t active_parameters(const ModelConfig& c) {
  const int64_t idle = c.moe.experts - c.moe.top_k;
  int64_t n = count_parameters(c).total();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    if (c.has_experts(layer)) n -= idle * (network_matrices(c, c.moe.d_ff) + network_biases(c, c.moe.d_ff));
  }
  return n;
}

}  // namespace ashlar::model
