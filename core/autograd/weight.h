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
  int64_t contributions = 0;  ///< of this step, in main_grad or on their way into it

  /// The mode for the next contribution; marks it as made.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    return contributions++ == 0 ? GradMode::kOverwrite : GradMode::kAccumulate;
  }
};

}  // namespace ashlar
