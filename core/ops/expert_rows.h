#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// Where the choices of a micro-batch are processed (SortChoices).
struct ExpertSlots {
  Tensor offsets;    ///< [G + 1] kInt32
  Tensor slots;      ///< [N, k] kInt32; -1 for an expert of another rank
  int64_t rows = 0;  ///< S, the number of rows that are reserved for the G experts
};

/// Sorts choices [N, k] by expert, for the experts [first, first + count) of this rank. Reserves N * k rows.
ExpertSlots sort_choices(const Ctx& ctx, const Tensor& choices, int64_t first, int64_t count);

/// Copies each row of x [N, C] to the slots of its choices, times `weights` [N, k] if given: -> [S, C].
Var dispatch(const Ctx& ctx, const Var& x, const ExpertSlots& at, const Var* weights = nullptr);

/// Adds the rows [S, C] of the choices of each row, times `weights` [N, k] if given: -> [N, C]. `rows` is a partial sum
/// over the tensor group, and so is the result.
Var combine(const Ctx& ctx, const Var& rows, const ExpertSlots& at, const Var* weights = nullptr);

}  // namespace ashlar::ops
