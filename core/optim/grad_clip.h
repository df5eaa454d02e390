#pragma once

#include <span>
#include <vector>

#include "core/backend/grad_clip.h"
#include "core/nn/flat_ranges.h"

namespace ashlar::optim {

/// A table in device memory, created once. It has, for each range, the sum to which its squares are added.
class SquaresTable {
 public:
  /// first_chunk is filled in here; slots must ascend.
  SquaresTable(const Ctx& ctx, std::vector<SquaresSegment> segments);

  /// Queues sums[slot] = sum of squares of the slot's segments of x; fp64 [slots].
  void sum(const Ctx& ctx, const Tensor& x, const Tensor& sums) const;

 private:
  Tensor segments_, partials_;
};

/// Index of the first sum that is NaN or infinite; -1: none.
int64_t first_non_finite(std::span<const double> sums);

}  // namespace ashlar::optim
