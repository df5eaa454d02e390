#pragma once

#include <optional>
#include <vector>

#include "launch/hf/shared/rows.h"

// Tables that several families use. Shared by the files of this folder; not part of its interface. Source of all
// tables: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {

// -- Values for Family::base.

inline constexpr model::NormConfig kLayerNorm = {.variant = {.type = NormType::kLayerNorm},
                                                 .affine = model::NormAffine::kScaleBias};
inline constexpr model::NormConfig kLayerNormWithoutBias = {.variant = {.type = NormType::kLayerNorm},
                                                            .affine = model::NormAffine::kScale};
constexpr model::NormConfig rms_norm(model::NormPlacement placement, bool unit_offset = false) {
  return {.variant = {.type = NormType::kRmsNorm, .unit_offset = unit_offset}, .placement = placement};
}
inline constexpr model::NormConfig kRmsNorm = rms_norm(model::NormPlacement::kPre);
inline constexpr model::BiasConfig kAllBiasesButHead = {.qkv = true, .attn_out = true, .ffn = true};
inline constexpr model::FfnConfig kUngated = {.act = Activation::kSilu, .gated = false};
inline constexpr model::FfnConfig kUngatedGelu = {.act = Activation::kGeluErf, .gated = false};
inline constexpr model::BlockConfig kParallel = {.topology = model::Topology::kParallel, .parallel_norms = 1};
inline constexpr model::RopeConfig kInterleaved = {.base = 10000.0, .dims = 0, .style = RopeStyle::kInterleaved};

/// The router of DeepSeek V3 and GLM 4.5.
model::MoeConfig sigmoid_with_selection_bias();

/// Forms of experts (TensorNames::expert_forms) of Qwen's line: as in published files, and as transformers 5 has them
/// in memory.
inline constexpr ExpertForm kEachExpert = {};
inline constexpr ExpertForm kFusedExperts = {.fused = true};

// -- Functions that return the rows or tensor names of several families.

/// Returns the rows of `first`, then the rows of `more`.
Rows joined(Rows first, const Rows& more);

/// The default sizes of a family.
struct Sizes {
  int64_t vocab, positions, width, layers, heads, d_ff;
};

/// Rows for sizes, activation, norm eps and attention dropout with Llama's keys, which most families have
/// (llama_rows.cpp). `act` is the default activation or the row that reads the activation. `eps_key` is null for a
/// family without a key for eps.
Rows llama_rows(const Sizes& sizes, const char* act, const char* eps_key, double eps);
Rows llama_rows(const Sizes& sizes, const Row& act, const char* eps_key, double eps);
/// Rows of Mistral and Ministral. `types`: layer_types names the layers that have a window.
Rows mistral_rows(bool types);
Rows glm_rows();

/// Rows for sizes, activation, norm eps and dropouts with GPT-2's keys (gpt_rows.cpp).
Rows gpt_rows(const Sizes& sizes, double dropout);
/// Returns `own` plus the tensor names that GPT-2 and its descendants share.
TensorNames gpt_tensors(TensorNames own);
/// gemma2_rows(): all rows of Gemma 2 and VaultGemma. gemma_rows(): the rows that these two share with Gemma 3
/// (gemma_rows.cpp).
Rows gemma2_rows();
Rows gemma_rows(const Sizes& sizes, int64_t kv_heads);
/// Rows that families share (granite_rows.cpp). granite_rows(): Granite and HyperCLOVA X. granite_multipliers():
/// also Granite SWA and Granite MoE. granite_scales(): Granite, Granite SWA and Granite MoE.
Rows granite_rows();
Rows granite_multipliers();
Rows granite_scales();

/// Returns `own` plus the tensor names that OPT, BioGPT and XGLM inherit from fairseq (fairseq_rows.cpp).
TensorNames fairseq_tensors(TensorNames own);
/// Keys for layer dropout and activation dropout, which are not supported: only 0 is accepted.
Rows fairseq_dropouts();

// -- Functions that return one row.

Row attention_bias(bool fallback = false);
Row mlp_bias(bool fallback = false);
/// Row that sets qk_norm.eps, for the norms of queries and keys, to norm.variant.eps, the eps of the other norms.
Row qk_norm_eps();
/// Row that requires the number of heads to divide d_model, even if config.json gives head_dim.
Row heads_divide_width();
/// Row that sets d_ff = 4 * d_model, for a family without a key for d_ff.
Row ffn_of_four_widths();
inline int64_t four_widths(const model::ModelConfig& m) { return 4 * m.d_model; }
/// Row that multiplies the embedding by sqrt(d_model): always, or if the flag `key` is true.
Row embedding_scale();
Row embedding_scale(const char* key, bool fallback);
/// clip_qkv = c clamps q, k and v to [-c, c]; null: no clamp.
Row clip_qkv();
/// Row for the windows of Qwen 2 and 3. If use_sliding_window is true, the layers that layer_types marks as
/// sliding_attention have windows; without layer_types, these are the layers from max_window_layers on.
Row qwen2_windows();

// Rows of families with experts (expert_rows.cpp). A family with experts has moe.balance = none, because its class has
// no balance loss, or one that depends on the micro-batch.

/// Row for the number of experts.
Row experts(const Keys& keys, int64_t fallback);
/// Row that makes intermediate_size, which llama_rows() reads, the width of an expert too.
Row expert_width();
/// norm_topk_prob: the weights of the chosen experts are divided by their sum.
Row renormalized(bool fallback);
/// output_router_logits and router_aux_loss_coef, which only change the training loss.
Row router_losses();
/// router_jitter_noise must be 0.
Row router_noise();
/// Row for the number of shared experts, each as wide as a routed expert: here they are one expert. `required`: there
/// is at least one.
Row shared_experts(const char* key, int64_t fallback, bool required = true);
std::string has_shared_experts(const model::ModelConfig& m);  ///< a limit: the class always has shared experts
/// first_k_dense_replace: the number of layers before the first one with experts.
Row first_layers(int64_t fallback);
/// n_group and topk_group: experts are chosen from the best topk_group of n_group groups. A group's score is the sum of
/// its two largest.
Row groups_of_experts(int64_t groups, int64_t top_groups);
/// num_nextn_predict_layers: blocks after the last one that predict further tokens. An import leaves them out.
Row further_layers();
/// decoder_sparse_step and mlp_only_layers: which layers have experts.
Row sparse_layers();
/// Sets the keys of moe that say which layers have experts. `layers` is ascending.
void set_expert_layers(model::ModelConfig& m, const std::vector<int64_t>& layers);
/// Reads a list of layers: ascending, each once, without numbers that are no layer. Nothing if the key is absent or
/// null.
std::optional<std::vector<int64_t>> layer_list(JsonReader& r, const char* key, int64_t n_layers);

/// Row for no_rope_layers and no_rope_layer_interval (rotary_rows.cpp). The first has a 1 for each layer with rotary
/// positions, and a 0 for each other layer. Without it, every no_rope_layer_interval-th layer has no rotary positions.
/// `empty_list`: an empty list means the same as no list. This row must follow rope().
Row layers_without_rope(bool empty_list);

/// scale_attn_weights = false: the attention scores are not scaled.
Row scale_attn_weights();
/// rotary_dim, the number of rotated dimensions of a head in GPT-J and CodeGen.
Row rotary_dim();

/// use_bidirectional_attention must be false or null.
Row no_bidirectional_attention();
/// Row for hidden_activation, the activation key of Gemma 2 and later. These classes do not read hidden_act, although
/// published files have it.
Row gemma_hidden_activation();
/// Row for query_pre_attn_scalar: attention scores are divided by its square root instead of sqrt(head_dim).
Row query_pre_attn_scalar();
using OptionalNumberField = std::optional<double>& (*)(model::ModelConfig&);
/// Row for an optional number, e.g. a soft-cap. Null means no value; if the key is absent, the value is `absent`.
Row optional_number(const char* key, OptionalNumberField field, std::optional<double> absent);

/// Default ranks and head dimensions of latent attention (MLA, latent_rows.cpp). v_head_dim = 0: d_model / n_heads.
struct LatentSizes {
  int64_t q_rank, kv_rank, nope, rope, v_head_dim;
};
/// Row for the ranks and dimensions of LatentSizes. A head has rotated and unrotated dimensions: model.head_dim counts
/// both, head_dim in the file counts only the rotated ones.
Row latent_sizes(const LatentSizes& sizes);
/// Rows for the rotary keys of latent attention, and for the scale of the attention scores, which depends on YaRN.
Rows latent_rope(double base);

}  // namespace ashlar::hf
