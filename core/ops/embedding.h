#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Rows of a table, and how to add gradients back to it: `order` is a stable counting sort of `ids` (needed only
/// for training). Device memory that outlives the tape.
struct Lookup {
  const int32_t* ids = nullptr;    ///< [N]
  const int32_t* order = nullptr;  ///< [N]
};

/// scale * table[tokens] (+ positions_table[positions] when given) -> [N, C].
Var embedding(const Ctx& ctx, int64_t N, const Lookup& tokens, Weight& table, double scale, const Lookup& positions,
              Weight* positions_table);

}  // namespace ashlar::ops
