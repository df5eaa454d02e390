#pragma once

#include <utility>

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// A value on its way from the replica that computed it.
class ParamSync {
 public:
  virtual ~ParamSync() = default;
  virtual void wait(Stream& stream) = 0;  ///< later work of `stream` finds it there
};

/// What an operation sees of a parameter: its value and the main gradient it adds to.
/// The first contribution of a step overwrites, later ones (further micro-batches, a second use of a tied table)
/// accumulate, so that gradients are never filled with zeros first.
struct Weight {
  Tensor value;               ///< storage dtype; forward takes it by `read`
  Tensor main_grad;           ///< accumulate dtype, same shape; undefined when the parameter is frozen or in inference
  int64_t contributions = 0;  ///< of this step, in main_grad or on their way into it
  uint32_t grad_partial_axes = 0;  ///< of its sharded tensors together: groups to sum the gradient over (PartialAxis)

  mutable ParamSync* param_sync = nullptr;  ///< of the value; null when it is there

  /// The value as later work of `stream` finds it.
  const Tensor& read(Stream& stream) const {
    if (param_sync != nullptr) std::exchange(param_sync, nullptr)->wait(stream);
    return value;
  }
  /// The mode for the next contribution; marks it as made.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    return contributions++ == 0 ? GradMode::kOverwrite : GradMode::kAccumulate;
  }
};

}  // namespace ashlar
