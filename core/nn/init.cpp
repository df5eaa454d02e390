#include "core/nn/init.h"

namespace ashlar::nn {

void initialize(const Ctx& ctx, uint64_t seed, std::span<const ShardedRange> ranges, const FlatTensor& buffer) {
  for (const ShardedRange& range : ranges) {
    const ShardedTensor& tensor = *range.ref->tensor;
    const Tensor flat = buffer.of(range);
    if (tensor.init.kind == InitRule::Kind::kConstant) {
      ctx.backend.fill({.dst = flat.mut_view(), .value = tensor.init.value}, ctx.stream);
      continue;
    }
    for (const RangeBlock& block : blocks_of(range)) {
      const Tensor t = flat.flat_range(block.offset, block.rows * block.cols).reshape({block.rows, block.cols});
      ctx.backend.random_fill({.dst = t.mut_view(),
                               .scale = tensor.init.value,
                               .trunc_sigma = tensor.init.trunc_sigma,
                               .seed = seed,
                               .rng_stream = tensor.rng_stream(),
                               .row_begin = block.row,
                               .col_begin = block.col,
                               .global_cols = tensor.global_shape.cols()},
                              ctx.stream);
    }
  }
}

}  // namespace ashlar::nn
