#pragma once

#include "core/optim/optimizer.h"

namespace ashlar::optim {

/// Adam with decoupled weight decay. State: "m" and "v", moving averages of gradients and of their squares.
/// Source: Loshchilov & Hutter 2019 (arXiv:1711.05101) algorithm 2.
class AdamW final : public Optimizer {
 public:
  using Optimizer::Optimizer;
  void step(const Ctx& ctx, const ConstView& clip) override;
  void set_scalars(int64_t step, StepScalars& scalars) const override;  ///< sets the bias corrections
};

}  // namespace ashlar::optim
