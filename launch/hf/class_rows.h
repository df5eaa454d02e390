#pragma once

#include "launch/hf/family_tables.h"

// What the tables of several classes share, and the tables that are not in family_tables.cpp. Shared by the files of
// this folder; not part of its interface.
namespace ashlar::hf {

inline constexpr model::FfnConfig kUngated = {.act = Activation::kSilu, .gated = false};
inline constexpr model::BlockConfig kParallel = {.topology = model::Topology::kParallel, .parallel_norms = 1};
inline constexpr model::RopeConfig kInterleaved = {.base = 10000.0, .dims = 0, .style = RopeStyle::kInterleaved};

/// What GPT-2 and GPT-J share.
Rows gpt_rows(const Sizes& s, double dropout);

/// What most classes since share. `eps_key` has the default `eps`, null: the class has none; `act` is hidden_act where
/// it is a word, its default.
Rows usual_rows(const Sizes& s, const Row& act, const char* eps_key, double eps);

/// false leaves the scores as they are.
Row scale_attn_weights();
/// The rotated dimensions of GPT-J and what descends from it.
Row rotary_dim();
/// Whether the embedding counts sqrt(width) times.
Row embedding_scale(const char* key, bool fallback);

/// The class refuses a number of heads that does not divide the width, though head_dim is of its own.
Row heads_divide_width();

/// The embedding times sqrt(width), always.
Row embedding_times_root_of_width();
/// use_bidirectional_attention: false or null.
Row causal_attention_alone();
/// The factors and rotary keys of Granite.
Rows granite_factors();

// Layers of two kinds (kind_tables.cpp).
ClassTable gemma2();
ClassTable gemma3();
ClassTable gemma4();
ClassTable vaultgemma();
ClassTable cohere2();
ClassTable olmo3();
ClassTable exaone4();
ClassTable granite_swa();
ClassTable cwm();

// Llama's block but for an axis or two (llama_kin.cpp).
ClassTable gemma();
ClassTable nemotron();
ClassTable nanochat();
ClassTable arcee();
ClassTable jais2();
ClassTable ministral3();
ClassTable chameleon();
ClassTable qwen();
ClassTable baichuan();

// Latent attention and learned activations (latent_tables.cpp).
ClassTable apertus();
ClassTable minicpm3();
ClassTable youtu();

// GPT-2's and fairseq's descendants (gpt_kin.cpp).
ClassTable openai_gpt();
ClassTable bloom();
ClassTable persimmon();
ClassTable opt();
ClassTable biogpt();
ClassTable xglm();
ClassTable codegen();
ClassTable gpt_bigcode();

}  // namespace ashlar::hf
