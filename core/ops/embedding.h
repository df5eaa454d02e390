#pragma once

#include <span>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The table rows to look up. `order` is a stable counting sort of `ids`; only the gradient needs it. Both are kInt32
/// and must outlive the tape.
struct Lookup {
  ConstView ids{};    ///< [N]
  ConstView order{};  ///< [N]
};

struct EmbeddingOptions {
  int64_t N = 0;
  Lookup tokens;
  Lookup positions;  ///< used only with a table of positions
  double scale = 1;
  int64_t first_id = 0;         ///< vocabulary id of the table's first row
  int64_t first_position = 0;   ///< position of the positions table's first row
  ConstView fixed_positions{};  ///< [P, C] storage dtype: a constant table instead of a weight
};

/// A constant table of positions [positions, width] in storage dtype. Row p: sin(p f_m) for m < width/2, then cos(p
/// f_m), f_m = 10000^(-m / (width/2 - 1)); an odd width ends in a column of zeros. Source: fairseq's sinusoidal
/// positions, as in XGLM (Vaswani et al. 2017 section 3.5 interleaves pairs and has width/2 in the exponent).
Tensor sinusoidal_table(const Ctx& ctx, int64_t positions, int64_t width);

/// Ids of the vocabulary in device memory [n] kInt32.
Tensor id_list(const Ctx& ctx, std::span<const int64_t> ids);

/// scale * table[tokens - first_id] (+ the row of each position with a table of positions) -> [N, C]. If the table is a
/// slice of the vocabulary, rows of other ids get no token part: the result is a partial sum over the slices.
Var embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight& table, Weight* positions_table);

/// Only the rows of the positions, from the weight or from `options.fixed_positions`, as a partial sum over tensor
/// ranks.
Var position_embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight* positions_table);

}  // namespace ashlar::ops
