#pragma once

#include <span>
#include <vector>

#include "core/backend/grad_clip.h"
#include "core/nn/flat_ranges.h"

namespace ashlar::optim {

/// A table of SquaresSegment, which is created once in device memory. It determines to which sum the squares of each
/// range are added.
class SquaresTable {
 public:
  /// Copies the segments to device memory and sets their first_chunk. The segments must be ordered by slot.
  SquaresTable(const Ctx& ctx, std::vector<SquaresSegment> segments);

  /// Queues the kernel that computes sums[slot] = sum of the squares of x in all segments with that slot. `sums` is
  /// fp64 [slots].
  void sum(const Ctx& ctx, const Tensor& x, const Tensor& sums) const;

 private:
  Tensor segments_, partials_;
};

/// Returns the index of the first sum that is NaN or infinite, or -1 if there is none.
int64_t first_non_finite(std::span<const double> sums);

}  // namespace ashlar::optim
