#pragma once

#include <functional>
#include <memory>

#include "core/autograd/placement.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// Recomputes a value from stored tensors when backward needs it, so that the value itself is not stored.
struct Rematerialize {
  /// Starts the communication that the recomputation needs, if any. Returns a function that is called once and returns
  /// the recomputed value.
  std::function<std::function<Tensor()>()> start;
};

/// A value on a tape. `slot` is the index of its gradient on the tape, or -1 if the value needs no gradient.
struct Var {
  Tensor value;
  int slot = -1;
  std::shared_ptr<Rematerialize> rematerialize;  ///< how backward recomputes the value; null: it is stored
  ValueInfo info;                                ///< the op that produced the value, and its placement

  bool requires_grad() const { return slot >= 0; }
  const Shape& shape() const { return value.shape(); }
  int64_t rows() const { return value.rows(); }
  int64_t cols() const { return value.cols(); }
  /// Returns the Var without its value, for a node whose backward does not read the input.
  Var without_value() const { return {.value = {}, .slot = slot, .rematerialize = nullptr, .info = info}; }
};

/// An input that a node saves for backward: the tensor, or the function that recomputes it.
class Saved {
 public:
  explicit Saved(const Var& v) : rematerialize_(v.rematerialize) {
    if (!rematerialize_) tensor_ = v.value;
  }
  /// Starts the recomputation, if any. Returns a function that is called once and returns the saved value.
  std::function<Tensor()> start() const {
    if (rematerialize_) return rematerialize_->start();
    return [kept = tensor_] { return kept; };
  }
  Tensor get() const { return rematerialize_ ? rematerialize_->start()() : tensor_; }

 private:
  Tensor tensor_;
  std::shared_ptr<Rematerialize> rematerialize_;
};

}  // namespace ashlar
