#pragma once

#include <span>

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Rows of a table, and how to add gradients back to it: `order` is a stable counting sort of `ids` (needed only
/// for training). Both kInt32 and outlive the tape.
struct Lookup {
  ConstView ids{};    ///< [N]
  ConstView order{};  ///< [N]
};

struct EmbeddingOptions {
  int64_t N = 0;
  Lookup tokens;
  Lookup positions;  ///< read only with a table of positions
  double scale = 1;
  int64_t first_id = 0;         ///< the table's first row is this id of the vocabulary
  int64_t first_position = 0;   ///< the positions table's first row is this position
  ConstView fixed_positions{};  ///< [P, C] storage dtype: a table without a gradient in the place of a weight's
};

/// A table of positions without weights [positions, width] in storage dtype. Row p: sin(p f_m) for m < width/2, then
/// cos(p f_m), f_m = 10000^(-m / (width/2 - 1)); an odd width ends in a column of zeros. Source: fairseq's sinusoidal
/// positions, as XGLM has them (Vaswani et al. 2017 section 3.5 has pairs, and width/2 in the exponent).
Tensor sinusoidal_table(const Ctx& ctx, int64_t positions, int64_t width);

/// Ids of the vocabulary in device memory [n] kInt32.
Tensor id_list(const Ctx& ctx, std::span<const int64_t> ids);

/// scale * table[tokens - first_id] (+ the row of each position when a table of positions is given) -> [N, C]. With a
/// table that holds only a slice of the vocabulary, rows of other ids get no token part: the sum over all slices is the
/// whole.
Var embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight& table, Weight* positions_table);

/// The rows of positions alone, of the weight or of `options.fixed_positions`, as a part of the sum over tensor ranks.
Var position_embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight* positions_table);

}  // namespace ashlar::ops
