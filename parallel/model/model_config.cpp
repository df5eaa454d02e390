#include "parallel/model/model_config.h"

#include "parallel/model/rope_frequencies.h"

namespace ashlar::model {

bool is_of_kind(const ModelConfig& c, int64_t layer, RotationKind kind) {
  return kind == RotationKind::kAll || (rope_of(c, layer).base > 0) == (kind == RotationKind::kRotated);
}

bool has_qk_norm(const ModelConfig& c, int64_t layer) {
  return c.qk_norm.kind != QkNorm::kNone && is_of_kind(c, layer, c.qk_norm.layers);
}

bool qk_norm_has_gain(const ModelConfig& c) { return c.qk_norm.kind != QkNorm::kNone && c.qk_norm.kind != QkNorm::kL2; }

std::vector<int64_t> qk_norm_shape(const ModelConfig& c, int64_t heads, int64_t head_dim) {
  if (c.qk_norm.kind == QkNorm::kHead) return {head_dim};
  if (c.qk_norm.kind == QkNorm::kHeadPer) return {heads, head_dim};
  return {heads * head_dim};
}

namespace {

int64_t window_of(const ModelConfig& c, int64_t layer) {
  const bool full = c.attn.last_layer_full && layer + 1 == c.n_layers;
  return full ? -1 : c.attn.window_cycle[static_cast<size_t>(layer) % c.attn.window_cycle.size()];
}

}  // namespace

std::vector<int64_t> layer_windows(const ModelConfig& c) {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < c.n_layers; ++i) windows.push_back(window_of(c, i));
  return windows;
}

LayerHeads layer_heads(const ModelConfig& c, int64_t layer) {
  LayerHeads heads{.n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim};
  const bool full = window_of(c, layer) < 0;
  if (full) {
    heads.n_kv_heads = c.attn.global_n_kv_heads.value_or(c.n_kv_heads);
    heads.head_dim = c.attn.global_head_dim.value_or(c.head_dim);
    heads.values = !c.attn.k_eq_v;
  }
  heads.v_head_dim = c.attn.v_head_dim > 0 ? c.attn.v_head_dim : heads.head_dim;
  return heads;
}

int64_t global_rope_dims(const ModelConfig& c) {
  if (c.rope.global_dims) return *c.rope.global_dims;
  const int64_t width = c.attn.global_head_dim.value_or(c.head_dim);
  return width == c.head_dim || c.head_dim < 1 ? c.rope.dims : c.rope.dims * width / c.head_dim;
}

int64_t norms_per_block(const ModelConfig& c) {
  if (c.block.topology == Topology::kParallel) return c.block.parallel_norms;
  return c.norm.placement == NormPlacement::kSandwich ? 4 : 2;
}

bool ModelConfig::has_experts(int64_t layer) const {
  return moe.experts > 0 && layer >= moe.first_layer && (layer + 1) % moe.every == 0 &&
         std::ranges::find(moe.dense_layers, layer) == moe.dense_layers.end();
}

int64_t ModelConfig::expert_layers_before(int64_t layer) const {
  int64_t n = 0;
  for (int64_t i = 0; i < layer; ++i) n += has_experts(i) ? 1 : 0;
  return n;
}

int64_t derived_d_ff(int64_t d_model, bool gated, int64_t multiple_of) {
  if (!gated) return 4 * d_model;
  const int64_t unit = 3 * multiple_of;
  return (8 * d_model + unit - 1) / unit * multiple_of;
}

std::vector<int64_t> expert_layers_of(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < config.n_layers; ++layer)
    if (config.has_experts(layer)) layers.push_back(layer);
  return layers;
}

int64_t rope_dims_of(int64_t head_dim, double fraction) {
  return static_cast<int64_t>(static_cast<double>(head_dim) * fraction);
}

}  // namespace ashlar::model
