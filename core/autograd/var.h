#pragma once

#include <functional>
#include <memory>

#include "core/autograd/placement.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// Recomputes a value from stored tensors instead of storing it for backward.
struct Rematerialize {
  /// Starts the communication; the returned function is called once and returns the value.
  std::function<std::function<Tensor()>()> start;
};

/// A value on a tape. `slot` identifies its gradient there; -1: no gradient.
struct Var {
  Tensor value;
  int slot = -1;
  std::shared_ptr<Rematerialize> rematerialize;  ///< set by selective recomputation
  ValueInfo info;                                ///< its producer and its placement

  bool requires_grad() const { return slot >= 0; }
  const Shape& shape() const { return value.shape(); }
  int64_t rows() const { return value.rows(); }
  int64_t cols() const { return value.cols(); }
  /// Returns the Var without its value, for a node whose backward does not read the input.
  Var without_value() const { return {.value = {}, .slot = slot, .rematerialize = nullptr, .info = info}; }
};

/// A node's saved input: the tensor, or how to recompute it.
class Saved {
 public:
  explicit Saved(const Var& v) : rematerialize_(v.rematerialize) {
    if (!rematerialize_) tensor_ = v.value;
  }
  /// Starts the recomputation; the returned function is called once and returns the value.
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
