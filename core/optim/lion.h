#pragma once

#include "core/optim/optimizer.h"

namespace ashlar::optim {

/// Subtracts the learning rate times sign(beta1 * m + (1 - beta1) * gradient) from each weight, after decoupled weight
/// decay. State: "m", a moving average of gradients with factor beta2.
/// Source: Chen et al. 2023 (arXiv:2302.06675) algorithm 2.
class Lion final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step(const Ctx& ctx, const ConstView& clip) override;
};

}  // namespace ashlar::optim
