#pragma once

#include <any>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "core/autograd/tape.h"

namespace ashlar {

/// Values that the two runs of a recomputed function share, e.g. choices that must not be made again, and counts whose
/// exchange must not be repeated. The first run keeps values; the second run takes them in the same order.
class KeptValues {
 public:
  bool second_run() const { return second_run_; }
  void begin_second_run() { second_run_ = true, next_ = 0; }
  void keep(std::any value) { values_.push_back(std::move(value)); }
  template <typename T>
  const T& take() {
    ASHLAR_CHECK(second_run_ && next_ < values_.size(), "value ", next_, " of ", values_.size(), " kept values");
    return std::any_cast<const T&>(values_[next_++]);
  }

 private:
  std::vector<std::any> values_;
  size_t next_ = 0;
  bool second_run_ = false;
};

/// Activation checkpointing: runs `body` without recording and stores only the input. Backward runs `body` again on a
/// separate tape. `body` must depend only on the context and the input. `body` may contain dropout: its masks depend
/// only on seed, step and global indices, so both runs have the same masks. In the context of both runs, `kept` is the
/// list of values that `body` keeps.
/// Source: Chen et al. 2016 (arXiv:1604.06174).
Var recompute(const Ctx& ctx, const Var& input, std::function<Var(const Ctx&, const Var&)> body);

}  // namespace ashlar
