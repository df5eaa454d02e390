#pragma once

#include <span>
#include <vector>

#include "core/base/dtype.h"
#include "parallel/comm/operation.h"

namespace ashlar::comm {

/// out[i] = operands[0][i] (op) operands[1][i] (op) ..., from the left.
/// Sums: fp32 accumulator for fp32 and bf16, fp64 for fp64, 64-bit integers for int32; one rounding at the store.
/// Throws Bug when a sum overflows int32. Maxima: NaN is the largest value; of equal values (-0, +0) the first is
/// taken.
struct RankOrderReduce {
  std::span<const void* const> operands;  ///< each [size], read; one of them may be `out`
  void* out = nullptr;                    ///< [size], written
  int64_t size = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op{};
};
void reduce_in_rank_order(const RankOrderReduce& args);

/// The loops of reduce_in_rank_order compiled for one instruction set; all give the same results.
struct RankOrderVariant {
  const char* name;
  void (*reduce)(const RankOrderReduce& args);
};
/// Returns the variants that this machine supports; the fastest is the last.
std::vector<RankOrderVariant> rank_order_variants();

}  // namespace ashlar::comm
