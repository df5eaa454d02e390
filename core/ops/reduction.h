#pragma once

#include <cstdint>

#include "core/device/stream.h"
#include "core/tensor/view.h"

namespace ashlar::ops {

/// Reductions over the ranks among which the columns of a row are divided. The result has the same bits on each of
/// these ranks.
class Reduction {
 public:
  virtual ~Reduction() = default;
  virtual int64_t ranks() const = 0;
  virtual void max(MutView values, Stream& stream) = 0;  ///< elementwise maximum over the ranks, in place
  virtual void sum(MutView values, Stream& stream) = 0;
};

}  // namespace ashlar::ops
