#pragma once

#include <cstdint>

#include "core/device/stream.h"
#include "core/tensor/view.h"

namespace ashlar::ops {

/// Reductions over the ranks that hold the other slices of a row. The result has the same bits on each.
class Reduction {
 public:
  virtual ~Reduction() = default;
  virtual int64_t ranks() const = 0;
  virtual void max(MutView values, Stream& stream) = 0;  ///< elementwise, in place
  virtual void sum(MutView values, Stream& stream) = 0;
};

}  // namespace ashlar::ops
