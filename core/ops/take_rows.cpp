#include "core/ops/take_rows.h"

namespace ashlar::ops {

Tensor take_rows(const Ctx& ctx, const Tensor& x, std::span<const int64_t> rows) {
  const auto n = static_cast<int64_t>(rows.size());
  const Tensor out = ctx.empty(x.dtype(), {n, x.cols()});
  for (int64_t first = 0, end = 0; first < n; first = end) {
    while (end < n && rows[end] - rows[first] == end - first) ++end;
    ctx.backend.copy(
        {.src = x.row_range(rows[first], end - first).view(), .dst = out.row_range(first, end - first).mut_view()},
        ctx.stream);
  }
  return out;
}

}  // namespace ashlar::ops
