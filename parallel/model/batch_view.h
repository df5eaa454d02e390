#pragma once

#include <cstdint>

#include "core/tensor/view.h"

namespace ashlar::model {

/// One micro-batch in device memory, B samples of T tokens, N = B*T rows. All views are kInt32. Owned by the caller of
/// the model; must outlive the tape.
struct BatchView {
  int64_t B = 0, T = 0;
  ConstView ids{};             ///< [N]
  ConstView targets{};         ///< [N], ignore_index (-1) is skipped; absent if no loss is computed
  ConstView positions{};       ///< [N] rotary or learned position of each row
  ConstView doc_start{};       ///< [N] position in the sample where the row's document begins, or absent
  ConstView order{};           ///< [N] stable counting sort of ids (training)
  ConstView position_order{};  ///< [N] stable counting sort of positions (training with learned positions)

  int64_t rows() const { return B * T; }
};

}  // namespace ashlar::model
