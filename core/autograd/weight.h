#pragma once

#include <utility>

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// A value that is being gathered from the replica that computed it.
class ParamSync {
 public:
  virtual ~ParamSync() = default;
  virtual void wait(Stream& stream) = 0;  ///< later work of `stream` waits for it
};

/// A parameter as seen by operations: its value and its main gradient. The first contribution of a step overwrites the
/// gradient. Later ones (further micro-batches, a second use of a tied table) accumulate. So gradients need not be
/// zeroed.
class Weight {
 public:
  Tensor main_grad;           ///< accumulate dtype, same shape; undefined when frozen or in inference
  int64_t contributions = 0;  ///< contributions of this step that are in main_grad or being added to it
  /// True if every rank of the tensor group has the same values and a partial gradient.
  bool grad_partial = false;

  void set_memory(Tensor value, Tensor grad) {
    value_ = std::move(value);
    main_grad = std::move(grad);
  }

  const Shape& shape() const { return value_.shape(); }
  /// Returns the value, in storage dtype. It is valid for later work of `stream`.
  const Tensor& read(Stream& stream) const {
    if (sync_ != nullptr) std::exchange(sync_, nullptr)->wait(stream);
    return value_;
  }
  /// Declares that the value is being gathered from another replica. The next `read` waits for it.
  void set_sync(ParamSync& sync) { sync_ = &sync; }
  bool syncing() const { return sync_ != nullptr; }

  /// Counts the next contribution and returns its mode.
  GradMode next_mode() {
    if (!main_grad) return GradMode::kSkip;
    return contributions++ == 0 ? GradMode::kOverwrite : GradMode::kAccumulate;
  }

 private:
  Tensor value_;
  mutable ParamSync* sync_ = nullptr;  // null if the value is present
};

// Of a weight that may be absent (null).
inline ConstView value_or_none(const Weight* w, Stream& stream) {
  return w == nullptr ? ConstView{} : w->read(stream).view();
}
inline MutView grad_or_none(const Weight* w) { return w == nullptr ? MutView{} : mut_view_or_none(w->main_grad); }
inline GradMode next_mode(Weight* w) { return w == nullptr ? GradMode::kSkip : w->next_mode(); }

}  // namespace ashlar
