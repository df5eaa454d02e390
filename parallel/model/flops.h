#pragma once

#include <cstdint>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::model {

/// Returns N of the formula "6 N flops per token": the number of parameters in the matrix products of a token. Of the
/// experts of a layer, moe.top_k count. The LM head counts once, tied or not. Lookups (embedding, positions), biases
/// and norms do not count.
int64_t matmul_parameters(const ModelConfig& config);

/// Model flops of one token, forward and backward (a multiply-add is two flops; recomputation not counted). With L
/// layers, H query heads of width D and T = sequence_length:
/// attention_full: 12*L*H*D*T, or 6*L*H*(D+Dv)*T if values have width Dv != D; D may differ between layers. PaLM,
/// nanoGPT and torchtitan use this convention. attention_causal: half of attention_full, since half of the scores are
/// masked on average (llm.c, Megatron).
/// In a layer with a sliding window W < T, attention_full counts W keys per token, and attention_causal counts the
/// average number of visible keys, W - W^2 / (2T). In a layer with chunks, attention_full counts the squares of the
/// chunks, and attention_causal half of them.
struct FlopsPerToken {
  double matmul = 0;  ///< 6 N, N = matmul_parameters
  double attention_full = 0;
  double attention_causal = 0;
  double total_full() const { return matmul + attention_full; }
  double total_causal() const { return matmul + attention_causal; }
};
FlopsPerToken flops_per_token(const ModelConfig& config, int64_t sequence_length);
/// Returns the matrix flops of one token in each layer, without embedding and head.
std::vector<double> matmul_flops_of_layers(const ModelConfig& config);
/// Returns FlopsPerToken::attention_causal of each layer.
std::vector<double> attention_flops_of_layers(const ModelConfig& config, int64_t sequence_length);

/// Number of elements in the KV cache for one sample of `tokens` tokens: n_kv_heads * (head_dim + v_head_dim) per
/// token, summed over layers.
struct KvElements {
  int64_t all = 0;   ///< elements that Stage::make_cache allocates
  int64_t seen = 0;  ///< elements that the next token reads; a layer with a window W counts W tokens at most
};
KvElements kv_elements(const ModelConfig& config, int64_t tokens);

/// Rows (choices of tokens) that the routed experts of one rank process in a layer, if `ranks` ranks share the experts
/// and each has `tokens` tokens. With one rank both numbers are equal: routing does not change them.
struct ExpertRows {
  int64_t balanced = 0;  ///< if all experts get the same number of tokens: tokens * top_k
  int64_t most = 0;      ///< if every token of all ranks chooses as many experts of this rank as it can
};
ExpertRows expert_rows(const MoeConfig& moe, int64_t tokens, int64_t ranks);
/// Elements in the storage dtype that backward needs of each such row: 2*C + 3*F (2*F if not gated) with F =
/// moe.d_ff / tensor_ranks; F less if outputs of activations are recomputed.
int64_t expert_row_elements(const ModelConfig& config, int64_t tensor_ranks, bool recomputed);

}  // namespace ashlar::model
