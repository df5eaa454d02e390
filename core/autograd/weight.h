#pragma once

#include "core/backend/common.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// What an operation sees of a parameter: its value and the main gradient it adds to.
/// The first contribution of a step overwrites, later ones (further micro-batches, a second use of a tied table)
/// accumulate, so that gradients are never filled with zeros first.
struct Weight {
  Tensor value;               ///< storage dtype
  Tensor main_grad;           ///< accumulate dtype, same shape; undefined when the parameter is frozen or in inference
  bool grad_written = false;  ///< a contribution of this step is in main_grad

  /// The mode for the next contribution; marks it as made.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    const GradMode mode = grad_written ? GradMode::kAccumulate : GradMode::kOverwrite;
    grad_written = true;
    return mode;
  }
};

}  // namespace ashlar
