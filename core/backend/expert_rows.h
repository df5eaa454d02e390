#pragma once

#include "core/backend/common.h"

namespace ashlar {

// The rows of a micro-batch are copied to their experts and back. Choice j of row n is the pair (n, j). The choices of
// the G experts of this rank are sorted by expert, and expert g processes the slots offsets[g] <= s < offsets[g + 1].
// slots[n, j] is the slot of choice (n, j), or -1 if its expert is not on this rank. Offsets stay in device memory: the
// host does not know how many rows an expert gets.

/// Sorts choices by expert with a stable counting sort: within an expert, slots ascend with n, then with j.
struct SortChoices {
  ConstView choices;         ///< [N, k] kInt32, global index of an expert
  MutView offsets;           ///< [G + 1] kInt32, written; offsets[0] = 0
  MutView slots;             ///< [N, k] kInt32, written: a slot below offsets[G], or -1
  int64_t first_expert = 0;  ///< the experts of this rank are [first_expert, first_expert + G)

  auto views() const { return std::tie(choices, offsets, slots); }
};

/// Copies rows to their slots: rows[slots[n, j]] = weights[n, j] * x[n], for all choices with a slot; without weights,
/// rows[slots[n, j]] = x[n]. Slots without a choice are set to zero: `rows` has S >= offsets[G] rows, of which the rows
/// from offsets[G] on have none. If `others` is present, also computes dots[n, j] = sum over c of x[n, c] *
/// others[slots[n, j], c], or 0 if there is no slot.
struct DispatchRows {
  ConstView x;          ///< [N, C] storage dtype
  ConstView slots;      ///< [N, k] kInt32, as written by SortChoices
  ConstView offsets;    ///< [G + 1] kInt32, as written by SortChoices
  ConstView weights{};  ///< [N, k] accumulate dtype, or absent
  ConstView others{};   ///< [S, C] storage dtype, or absent
  MutView rows;         ///< [S, C] storage dtype, written; must not alias `others`
  MutView dots{};       ///< [N, k] accumulate dtype, written; present iff `others` is

  auto views() const { return std::tie(x, slots, offsets, weights, others, rows, dots); }
};

/// Adds the rows of the slots of each row: y[n] (+)= sum over j of weights[n, j] * rows[slots[n, j]], over the choices
/// with a slot, in ascending j; without weights, the sum of rows[slots[n, j]]. The sum is in the accumulate dtype and
/// rounded once. If `others` is present, also computes dots[n, j] = sum over c of others[n, c] * rows[slots[n, j], c],
/// or 0 if there is no slot.
struct CombineRows {
  ConstView rows;       ///< [S, C] storage dtype
  ConstView slots;      ///< [N, k] kInt32, as written by SortChoices
  ConstView weights{};  ///< [N, k] accumulate dtype, or absent
  ConstView others{};   ///< [N, C] storage dtype, or absent
  MutView y;            ///< [N, C] storage dtype, written or accumulated (mode)
  MutView dots{};       ///< [N, k] accumulate dtype, written; present iff `others` is
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(rows, slots, weights, others, y, dots); }
};

}  // namespace ashlar
