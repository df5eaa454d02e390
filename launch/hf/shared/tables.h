#pragma once

#include "launch/hf/shared/rows.h"

// Tables that several families use. Shared by the files of this folder; not part of its interface. Source of all
// tables: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {

// -- Parts of a model, for `base`.

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

// -- Tables.

/// `first`, then `more`.
Rows joined(Rows first, const Rows& more);

/// The default sizes of a family.
struct Sizes {
  int64_t vocab, positions, width, layers, heads, d_ff;
};

/// Sizes, activation, norm eps and dropout by Llama's keys, which most families have (llama_rows.cpp). `act`: the
/// default activation, or a separate row. `eps_key`: null for a family without one.
Rows llama_rows(const Sizes& sizes, const char* act, const char* eps_key, double eps);
Rows llama_rows(const Sizes& sizes, const Row& act, const char* eps_key, double eps);
/// Rows of Mistral and Ministral. `types`: layer_types gives the layers that have a window.
Rows mistral_rows(bool types);
Rows glm_rows();

/// Sizes, activation, norm eps and dropouts by GPT-2's keys (gpt_rows.cpp).
Rows gpt_rows(const Sizes& sizes, double dropout);
/// `own` with the names that GPT-2 and its descendants share.
TensorNames gpt_tensors(TensorNames own);
/// Rows of Gemma 2 and VaultGemma, and those that they share with Gemma 3 (gemma_rows.cpp).
Rows gemma2_rows();
Rows gemma_rows(const Sizes& sizes, int64_t kv_heads);
/// Rows of three sets of families: Granite and HyperCLOVA X; these two and Granite SWA; Granite and Granite SWA
/// (granite_rows.cpp).
Rows granite_rows();
Rows granite_multipliers();
Rows granite_scales();

/// `own` with the names that OPT, BioGPT and XGLM share, which descend from fairseq (fairseq_rows.cpp).
TensorNames fairseq_tensors(TensorNames own);
/// Dropout of layers and of activations, which is not supported.
Rows fairseq_dropouts();

// -- Single rows.

Row attention_bias(bool fallback = false);
Row mlp_bias(bool fallback = false);
/// The norms of queries and keys have the eps of the other norms.
Row qk_norm_eps();
/// The number of heads must divide the width, even where head_dim has a key of its own.
Row heads_divide_width();
/// d_ff = 4 * d_model, without a key.
Row ffn_of_four_widths();
inline int64_t four_widths(const model::ModelConfig& m) { return 4 * m.d_model; }
/// The embedding is multiplied by sqrt(d_model): always, or when the flag is true.
Row embedding_scale();
Row embedding_scale(const char* key, bool fallback);
/// q, k and v are clamped to [-c, c]; null: they are not.
Row clip_qkv();
/// The windows of Qwen 2 and 3. use_sliding_window switches them on, for the layers from max_window_layers on or for
/// those that layer_types names.
Row qwen2_windows();

/// false: the scores are not scaled.
Row scale_attn_weights();
/// The number of rotated dimensions, of GPT-J and CodeGen.
Row rotary_dim();

/// use_bidirectional_attention must be false or null.
Row no_bidirectional_attention();
/// hidden_activation of Gemma 2 and later. They do not read hidden_act, which the published files have too.
Row gemma_hidden_activation();
/// The scores are divided by the square root of this number, not by that of head_dim.
Row query_pre_attn_scalar();
using OptionalNumberField = std::optional<double>& (*)(model::ModelConfig&);
/// A soft-cap. Null: none. Absent: `absent`.
Row optional_number(const char* key, OptionalNumberField field, std::optional<double> absent);

/// The widths of latent attention (latent_rows.cpp); v_head_dim 0: width / heads.
struct LatentSizes {
  int64_t q_rank, kv_rank, nope, rope, v_head_dim;
};
/// Ranks and widths. A head has rotated and other columns. model.head_dim counts both; head_dim in the file counts only
/// the rotated ones.
Row latent_sizes(const LatentSizes& sizes);
/// The config.json entries for the rotary embedding of latent attention, and the score scale, which depends on YaRN.
Rows latent_rope(double base);

}  // namespace ashlar::hf
