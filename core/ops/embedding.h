#pragma once

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
  int64_t first_id = 0;  ///< the table's first row is this id of the vocabulary
};

/// scale * table[tokens - first_id] (+ positions_table[positions] when given) -> [N, C]. With a table that holds only a
/// slice of the vocabulary, rows of other ids get no token part: the sum over all slices is the whole.
Var embedding(const Ctx& ctx, const EmbeddingOptions& options, Weight& table, Weight* positions_table);

}  // namespace ashlar::ops
