#pragma once

#include <cstdint>

namespace ashlar::model {

/// One micro-batch in device memory, B samples of T tokens, N = B*T rows. Owned by whoever feeds the model; must
/// outlive the tape.
struct BatchView {
  int64_t B = 0, T = 0;
  const int32_t* ids = nullptr;             ///< [N]
  const int32_t* targets = nullptr;         ///< [N], -1 = not counted; null where no loss is computed
  const int32_t* positions = nullptr;       ///< [N] rotary or learned position of each row
  const int32_t* doc_start = nullptr;       ///< [N] position in the sample where the row's document begins, or null
  const int32_t* order = nullptr;           ///< [N] stable counting sort of ids (training)
  const int32_t* position_order = nullptr;  ///< [N] stable counting sort of positions (training with learned positions)

  int64_t rows() const { return B * T; }
};

}  // namespace ashlar::model
