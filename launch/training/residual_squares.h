#pragma once

#include <cstdint>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/optim/grad_clip.h"

namespace ashlar::training {

/// Sums of squares of the residual stream of one step, taken while its forward passes run: n_layers + 1 of them, after
/// the embedding and after each block.
class ResidualSquares {
 public:
  struct Shape {
    int64_t layers = 0, rows = 0, d_model = 0;  ///< `rows`: of this rank, of a micro-batch
    int64_t micro_batches = 0;
  };
  ResidualSquares(const Ctx& ctx, const Shape& shape);

  /// Queues the sum of a micro-batch after `layers` blocks. Called once for each micro-batch and each of this rank's
  /// places, in any order.
  void see(const Ctx& ctx, int64_t layers, const Tensor& rows);
  /// Returns the sums over the micro-batches, 0 at the places of other pipeline stages. The host waits.
  std::vector<double> sums(const Ctx& ctx) const;

  const Shape& shape() const { return shape_; }

 private:
  Shape shape_;
  optim::SquaresTable squares_;
  Tensor sums_;                ///< fp64 [micro_batches, layers + 1]
  std::vector<int64_t> seen_;  ///< micro-batches, by layers
};

}  // namespace ashlar::training
