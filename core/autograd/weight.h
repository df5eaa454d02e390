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
class Weight {
 public:
  Tensor main_grad;           ///< accumulate dtype, same shape; undefined when frozen or in inference
  int64_t contributions = 0;  ///< of this step, in main_grad or on their way into it
  /// Every rank of the tensor group holds the same values, and a part of the gradient's sum.
  bool grad_partial = false;

  void set_memory(Tensor value, Tensor grad) {
    value_ = std::move(value);
    main_grad = std::move(grad);
  }

  const Shape& shape() const { return value_.shape(); }
  /// The value, in storage dtype, as later work of `stream` finds it.
  const Tensor& read(Stream& stream) const {
    if (sync_ != nullptr) std::exchange(sync_, nullptr)->wait(stream);
    return value_;
  }
  /// The value is on its way from another replica: the next `read` waits for it.
  void set_sync(ParamSync& sync) { sync_ = &sync; }
  bool syncing() const { return sync_ != nullptr; }

  /// The mode for the next contribution; marks it as made.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    return contributions++ == 0 ? GradMode::kOverwrite : GradMode::kAccumulate;
  }

 private:
  Tensor value_;
  mutable ParamSync* sync_ = nullptr;  // null when the value is there
};

}  // namespace ashlar
