#pragma once

#include <utility>

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// A pending all-gather of parameter values: after an optimizer step, each replica receives the values that the other
/// replicas have updated.
class ParamSync {
 public:
  virtual ~ParamSync() = default;
  virtual void wait(Stream& stream) = 0;  ///< makes work queued on `stream` after this call wait for the all-gather
};

/// A parameter as operations see it: its value and its main gradient. The first contribution of a step overwrites the
/// gradient, so that gradients need not be zeroed. Later contributions (further micro-batches, the second use of a tied
/// embedding table) are added.
class Weight {
 public:
  Tensor main_grad;           ///< accumulate dtype, shape of the value; undefined if frozen or in inference
  int64_t contributions = 0;  ///< number of contributions to main_grad that this step has queued
  /// True if each rank of the tensor group has the same weight but only a partial gradient, and the partial gradients
  /// must be summed over the group.
  bool grad_partial = false;

  void set_memory(Tensor value, Tensor grad) {
    value_ = std::move(value);
    main_grad = std::move(grad);
  }

  const Shape& shape() const { return value_.shape(); }
  /// Returns the value, in storage dtype, for kernels that are queued on `stream` after this call.
  const Tensor& read(Stream& stream) const {
    if (sync_ != nullptr) std::exchange(sync_, nullptr)->wait(stream);
    return value_;
  }
  /// Declares that an all-gather of the value is pending. The next `read` makes its stream wait for the all-gather.
  void set_sync(ParamSync& sync) { sync_ = &sync; }
  bool syncing() const { return sync_ != nullptr; }

  /// Counts one more contribution to main_grad and returns the GradMode with which it must be written.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    return contributions++ == 0 ? GradMode::kOverwrite : GradMode::kAccumulate;
  }

 private:
  Tensor value_;
  mutable ParamSync* sync_ = nullptr;  // null if no all-gather is pending
};

// For a weight that may be absent. If `w` is null, these functions return an absent view or kSkip.
inline ConstView value_or_none(const Weight* w, Stream& stream) {
  return w == nullptr ? ConstView{} : w->read(stream).view();
}
inline MutView grad_or_none(const Weight* w) { return w == nullptr ? MutView{} : mut_view_or_none(w->main_grad); }
inline GradMode next_mode(Weight* w) { return w == nullptr ? GradMode::kSkip : w->next_mode(); }

}  // namespace ashlar
