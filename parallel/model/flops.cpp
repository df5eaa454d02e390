#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"

#include <algorithm>

namespace ashlar::model {

namespace {

/// Average number of keys per query. full: keys inside the square or the band of the mask. causal: keys that are
/// visible, so that a full square of T tokens counts T/2.
struct KeysPerQuery {
  double full, causal;
};
KeysPerQuery keys_per_query(int64_t window, WindowKind kind, int64_t sequence_length) {
  const auto T = static_cast<double>(sequence_length), W = static_cast<double>(window);
  if (window < 0 || window >= sequence_length) return {T, 0.5 * T};
  if (kind == WindowKind::kSliding) return {W, W - 0.5 * W * W / T};
  const auto rest = static_cast<double>(sequence_length % window);  // length of a shorter last chunk
  const double squares = ((T - rest) * W + rest * rest) / T;
  return {squares, 0.5 * squares};
}

struct AttendingLayer {
  KeysPerQuery keys;
  double flops_a_key;  ///< flops of all heads for one query and one key: q.k and p.v, forward and backward
};
std::vector<AttendingLayer> attending_layers(const ModelConfig& c, int64_t sequence_length) {
  std::vector<AttendingLayer> layers;
  for (const int64_t window : layer_windows(c)) {
    const LayerHeads heads = layer_heads(c, std::ssize(layers));
    layers.push_back({keys_per_query(window, c.attn.window_kind, sequence_length),
                      6.0 * static_cast<double>(c.n_heads * (heads.head_dim + heads.v_head_dim))});
  }
  return layers;
}

}  // namespace

int64_t matmul_parameters(const ModelConfig& c) {
  const ParameterCount n = count_parameters(c);
  int64_t matrices = n.attention + n.projections + c.vocab_padded() * c.table_width();
  for (int64_t layer = 0; layer < c.n_layers; ++layer) matrices += ffn_matrices(c, layer).active;
  return matrices;
}

std::vector<double> matmul_flops_of_layers(const ModelConfig& c) {
  std::vector<double> flops;
  for (int64_t layer = 0; layer < c.n_layers; ++layer)
    flops.push_back(6.0 * static_cast<double>(attention_matrices(c, layer) + ffn_matrices(c, layer).active));
  return flops;
}

std::vector<double> attention_flops_of_layers(const ModelConfig& c, int64_t sequence_length) {
  std::vector<double> flops;
  for (const AttendingLayer& layer : attending_layers(c, sequence_length))
    flops.push_back(layer.flops_a_key * layer.keys.causal);
  return flops;
}

FlopsPerToken flops_per_token(const ModelConfig& c, int64_t sequence_length) {
  FlopsPerToken f;
  f.matmul = 6.0 * static_cast<double>(matmul_parameters(c));
  for (const AttendingLayer& layer : attending_layers(c, sequence_length))
    f.attention_full += layer.flops_a_key * layer.keys.full;
  for (const double layer : attention_flops_of_layers(c, sequence_length)) f.attention_causal += layer;
  return f;
}

KvElements kv_elements(const ModelConfig& c, int64_t tokens) {
  KvElements n;
  const std::vector<int64_t> windows = layer_windows(c);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const LayerHeads heads = layer_heads(c, i);
    const int64_t window = windows[static_cast<size_t>(i)],
                  a_token = heads.n_kv_heads * (heads.head_dim + heads.v_head_dim);
    n.all += a_token * tokens;
    n.seen += a_token * (window < 0 ? tokens : std::min(window, tokens));
  }
  return n;
}

ExpertRows expert_rows(const MoeConfig& moe, int64_t tokens, int64_t ranks) {
  const int64_t held = (moe.experts + ranks - 1) / ranks;
  return {.balanced = tokens * moe.top_k, .most = ranks * tokens * std::min(moe.top_k, held)};
}

int64_t expert_row_elements(const ModelConfig& c, int64_t tensor_ranks, bool recomputed) {
  const int64_t hidden = (c.ffn.gated ? 2 : 1) + (recomputed ? 0 : 1);
  return 2 * c.d_model + hidden * (c.moe.d_ff / tensor_ranks);
}

}  // namespace ashlar::model
