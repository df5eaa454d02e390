#pragma once

#include "launch/hf/table_rows.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// What config.json says of the models of one class, for both directions.
struct ClassTable {
  model::ModelConfig base;  ///< the axes that every model of the class has, which no key says
  Rows rows;
};

ClassTable class_table(Family family);

// What tables share.
inline constexpr model::NormConfig kLayerNorm = {.variant = {.type = NormType::kLayerNorm},
                                                 .affine = model::NormAffine::kScaleBias};
inline constexpr model::NormConfig kRmsNorm = {.variant = {.type = NormType::kRmsNorm},
                                               .affine = model::NormAffine::kScale};
inline int64_t four_widths(const model::ModelConfig& m) { return 4 * m.d_model; }
/// `first`, then `more`.
Rows joined(Rows first, const Rows& more);
/// The sizes of a class when the file says none.
struct Sizes {
  int64_t vocab, positions, width, layers, heads, d_ff;
};
/// What most classes share. `eps_key` has the default `eps`.
Rows usual_rows(const Sizes& s, const char* act, const char* eps_key, double eps);
/// Norms of queries and keys have the eps of the others.
Row qk_norm_eps();

// The tables of norm_tables.cpp.
ClassTable olmo2();
ClassTable glm();
ClassTable glm4();
ClassTable granite();
ClassTable hyperclovax();
ClassTable cohere();
ClassTable helium();
ClassTable hunyuan();
ClassTable seed_oss();
ClassTable ernie();
ClassTable smollm3();

// The tables of attention_tables.cpp.
ClassTable mistral();
ClassTable ministral();
ClassTable starcoder2();
ClassTable gpt_neo();
ClassTable mpt();
ClassTable olmo();
Row falcon_positions();

}  // namespace ashlar::hf
