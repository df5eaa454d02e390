#include "launch/training/residual_squares.h"

#include "core/base/error.h"

namespace ashlar::training {

ResidualSquares::ResidualSquares(const Ctx& ctx, const Shape& shape)
    : shape_(shape),
      squares_(ctx, {{.size = shape.rows * shape.d_model}}),
      sums_(ctx.empty(DType::kFloat64, {shape.micro_batches, shape.layers + 1}, MemoryKind::kWorkspace)),
      seen_(static_cast<size_t>(shape.layers + 1)) {
  ctx.backend.fill({.dst = sums_.mut_view(), .value = 0}, ctx.stream);
}

void ResidualSquares::see(const Ctx& ctx, int64_t layers, const Tensor& rows) {
  const int64_t batch = seen_[static_cast<size_t>(layers)]++;
  ASHLAR_CHECK(batch < shape_.micro_batches, "the residual stream of a micro-batch was seen twice");
  squares_.sum(ctx, rows, sums_.flat_range(batch * (shape_.layers + 1) + layers, 1));
}

std::vector<double> ResidualSquares::sums(const Ctx& ctx) const {
  const size_t places = seen_.size();
  std::vector<double> of_batches(static_cast<size_t>(sums_.size())), all(places);
  ctx.backend.read(sums_.view(), of_batches.data(), ctx.stream);
  for (size_t i = 0; i < of_batches.size(); ++i) all[i % places] += of_batches[i];
  return all;
}

}  // namespace ashlar::training
