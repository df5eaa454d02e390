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

/// Number of elements of the gains and biases of the norms of queries and keys in a block.
int64_t qk_norm_elements(const ModelConfig& c, const LayerHeads& heads) {
  if (!qk_norm_has_gain(c)) return 0;
  const int64_t D = heads.head_dim;
  const int64_t gains = c.qk_norm.kind == QkNorm::kHead ? 2 * D : c.n_heads * D + heads.k_width();
  return (c.qk_norm.bias ? 2 : 1) * gains;
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

int64_t ffn_matrices(const ModelConfig& c) { return (c.ffn.gated ? 3 : 2) * c.d_model * c.d_ff; }

ParameterCount count_parameters(const ModelConfig& c) {
  ParameterCount n;
  n.embedding = c.vocab_padded() * c.table_width();
  n.projections = c.embed_dim ? 2 * *c.embed_dim * c.d_model : 0;
  n.positions = c.pos.type == PosType::kLearned ? (c.pos.max_positions + c.pos.learned_offset) * c.d_model : 0;
  if (c.pos.type == PosType::kT5Bias)
    n.positions = (c.pos.t5_shared ? 1 : c.n_layers) * c.pos.t5_num_buckets * c.n_heads;
  n.ffn = c.n_layers * ffn_matrices(c);
  const int64_t norms = c.n_layers * norms_per_block(c) + (c.norm.final ? 1 : 0) + (c.norm.embed ? 1 : 0);
  n.norms = norms * norm_vectors(c.norm.affine) * c.d_model +
            c.n_layers * (latent_norm_elements(c) + (c.block.out_scalar ? 1 : 0));
  int64_t bias = c.bias.attn_out ? c.d_model : 0;
  bias += c.bias.ffn ? (c.ffn.gated ? 2 : 1) * c.d_ff + c.d_model : 0;
  bias += c.attn.sinks ? c.n_heads : 0;
  bias += c.ffn.act == Activation::kXielu ? 2 : 0;
  n.biases = c.n_layers * bias;
  for (int64_t layer = 0; layer < c.n_layers; ++layer) {
    const LayerHeads heads = layer_heads(c, layer);
    n.attention += attention_matrices(c, layer);
    n.norms += qk_norm_elements(c, heads);
    if (c.bias.qkv && c.latent()) n.biases += latent_rows(c);
    if (c.bias.qkv && !c.latent())
      n.biases += c.n_heads * heads.head_dim + heads.k_width() + (heads.values ? heads.v_width() : 0);
  }
  n.head = c.tied ? 0 : c.vocab_padded() * c.table_width();
  n.head_bias = c.bias.lm_head ? c.vocab_padded() : 0;
  return n;
}

}  // namespace ashlar::model
