#pragma once

#include <cstdint>

#include "core/tensor/view.h"

namespace ashlar::model {

/// One micro-batch in device memory, B samples of T tokens, N = B*T rows. All views are kInt32. The caller of the model
/// owns the memory, which must outlive the tape.
struct BatchView {
  int64_t B = 0, T = 0;
  ConstView ids{};             ///< [N] token ids
  ConstView targets{};         ///< [N] ids to predict; -1 (ignore_index) is skipped; absent if no loss is computed
  ConstView positions{};       ///< [N] rotary or learned position of each row
  ConstView doc_start{};       ///< [N] position in the sample where the row's document begins, or absent
  ConstView order{};           ///< [N] row numbers, sorted by id (stable); only for training
  ConstView position_order{};  ///< [N] row numbers, sorted by position (stable); only for training learned positions

  int64_t rows() const { return B * T; }
};

}  // namespace ashlar::model
