// A residual addition and the norm of the sum.
// Memory-bound: in fp32 16 B per element (two read, two written) instead of the 20 B of separate kernels; a few rows at
// a time are added and then normalized while they are in the L1 cache. Threads process contiguous rows.

#include "core/backend/residual_norm.h"

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/fused_rows.h"
#include "kernels/cpu/row_ops.h"

namespace ashlar::cpu {

void CpuBackend::launch(const ResidualNormForward& args, Stream&) {
  constexpr int64_t kBytesInCache = 16 << 10;
  const ConstView sum = args.norm.x;
  const int64_t rows_in_cache =
      std::max<int64_t>(1, kBytesInCache / std::max<int64_t>(1, sum.cols * size_of(sum.dtype)));
  const ResidualRows add = residual_forward_rows(info_.isa);
  const NormRows norm = norm_forward_rows(info_.isa);
  parallel_for(threads_, sum.rows, rows_grain(sum.cols, kCheapGrain), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; n += rows_in_cache) {
      const int64_t stop = std::min(end, n + rows_in_cache);
      add(args.residual, n, stop);
      norm(args.norm, n, stop);
    }
  });
}

}  // namespace ashlar::cpu
