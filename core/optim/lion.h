#pragma once

#include "core/optim/optimizer.h"

namespace ashlar::optim {

/// Moves each weight by the learning rate, in the direction of the sign of a mean of gradients. State: "m", another
/// mean of gradients. Source: Chen et al. 2023 (arXiv:2302.06675) algorithm 2.
class Lion final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step(const Ctx& ctx, const ConstView& clip) override;
};

}  // namespace ashlar::optim
