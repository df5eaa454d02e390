#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/read/batch.h"

namespace ashlar::testing {

/// Ids that no batch of these tests has as a target, of every rank's slice.
inline const std::vector<int64_t> kMaskedIds = {0, 9, 20, 36};

/// Targets that are masked do not count: their loss is infinite.
inline void ignore_masked_targets(data::Batch& batch) {
  for (int32_t& target : batch.targets) {
    if (!std::binary_search(kMaskedIds.begin(), kMaskedIds.end(), int64_t{target})) continue;
    target = -1;
    --batch.valid_targets;
  }
}

}  // namespace ashlar::testing
