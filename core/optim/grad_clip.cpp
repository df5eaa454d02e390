#include "core/optim/grad_clip.h"

#include <algorithm>
#include <cmath>

namespace ashlar::optim {

SquaresTable::SquaresTable(const Ctx& ctx, std::vector<SquaresSegment> segments) {
  int64_t chunks = 0, slot = 0;
  for (SquaresSegment& segment : segments) {
    ASHLAR_CHECK(segment.slot >= slot, "expected ascending slots, got slot ", segment.slot, " after ", slot);
    slot = segment.slot;
    segment.first_chunk = chunks;
    chunks += segment.num_chunks();
  }
  segments_ = ctx.upload_table(segments);
  partials_ = ctx.empty(DType::kFloat64, {chunks}, MemoryKind::kWorkspace);
}

void SquaresTable::sum(const Ctx& ctx, const Tensor& x, const Tensor& sums) const {
  ctx.backend.sum_squares({.x = x.flat_range(0, x.size()).view(),
                           .segments = segments_.view(),
                           .partials = partials_.mut_view(),
                           .sums = sums.mut_view()},
                          ctx.stream);
}

int64_t first_non_finite(std::span<const double> sums) {
  const auto at = std::find_if(sums.begin(), sums.end(), [](double s) { return !std::isfinite(s); });
  return at == sums.end() ? -1 : at - sums.begin();
}

}  // namespace ashlar::optim
