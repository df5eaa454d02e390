#pragma once

#include <functional>
#include <memory>

#include "core/autograd/placement.h"
#include "core/tensor/tensor.h"

namespace ashlar {

/// How to make a value again from what is kept anyway, instead of keeping it for backward.
struct Rematerialize {
  /// Begins what other ranks take part in; the function that it returns is called once and gives the value.
  std::function<std::function<Tensor()>()> start;
};

/// A value on a tape. `slot` names its gradient there; -1 means that none is wanted.
struct Var {
  Tensor value;
  int slot = -1;
  std::shared_ptr<Rematerialize> rematerialize;  ///< set by selective recomputation
  Made made;                                     ///< by which op, and what it is along the tensor axis

  bool requires_grad() const { return slot >= 0; }
  const Shape& shape() const { return value.shape(); }
  int64_t rows() const { return value.rows(); }
  int64_t cols() const { return value.cols(); }
  /// Its place on the tape alone: what a node keeps of an input whose value its backward does not read.
  Var without_value() const { return {.value = {}, .slot = slot, .rematerialize = nullptr, .made = made}; }
};

/// What a node keeps of an input: the tensor, or the way to make it again.
class Saved {
 public:
  explicit Saved(const Var& v) : rematerialize_(v.rematerialize) {
    if (!rematerialize_) tensor_ = v.value;
  }
  /// Begins to make it again; the value is what the function gives, called once.
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
