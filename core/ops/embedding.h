#pragma once

#include <span>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The ids to look up in a table. `order` lists the row numbers sorted by id (stable); only backward needs it. Both are
/// kInt32 and must outlive the tape.
struct Lookup {
  ConstView ids{};    ///< [N], id of each row
  ConstView order{};  ///< [N], row numbers sorted by id
};

struct EmbeddingOptions {
  int64_t N = 0;
  Lookup tokens;
  Lookup positions;  ///< used only with a position table
  double scale = 1;
  int64_t first_id = 0;         ///< vocabulary id of the table's first row
  int64_t first_position = 0;   ///< position of the position table's first row
  ConstView fixed_positions{};  ///< [P, C] storage dtype, a constant position table instead of a weight; or absent
};

/// Returns a constant position table [positions, width] in storage dtype. Row p has sin(p f_m) for m < width/2, then
/// cos(p f_m) for m < width/2, where f_m = 10000^(-m / (width/2 - 1)). If width is odd, the last column is zero.
/// Source: fairseq's sinusoidal positions, as in XGLM (Vaswani et al. 2017 section 3.5 interleaves sines and cosines,
/// and has width/2 in the exponent).
Tensor sinusoidal_table(const Ctx& ctx, int64_t positions, int64_t width);

/// Copies vocabulary ids to device memory, as kInt32 [n].
Tensor id_list(const Ctx& ctx, std::span<const int64_t> ids);

/// Returns scale * table[token id - first_id] [N, C], plus, if there is a position table, its row for each token's
/// position. If the table is a slice of the vocabulary, an id outside the slice contributes zero, so the result is a
/// partial sum over tensor ranks.
Var embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight& table, Weight* positions_table);

/// Returns only the position embeddings [N, C], from `positions_table` or from `options.fixed_positions`, as a partial
/// sum over tensor ranks.
Var position_embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight* positions_table);

}  // namespace ashlar::ops
