#pragma once

#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// Sharding of a tensor over the axes of the mesh. If an axis is in both `sharded_over` and `replicated_over`, several
/// ranks along the axis have the same part, e.g. a KV head on several tensor ranks.
struct TensorAxes {
  AxisSet sharded_over;                     ///< ranks along these axes may have different parts
  AxisSet replicated_over = kReplicaAxes;   ///< ranks along these axes may have the same part
  AxisSet grad_summed_over = kReplicaAxes;  ///< ranks along these axes with the same part have partial gradients, to be
                                            ///< summed

  /// Returns the axes over which gradients must be summed besides kReplicaAxes.
  AxisSet summed_in_replica() const { return grad_summed_over - kReplicaAxes; }
  bool operator==(const TensorAxes&) const = default;
};
/// Returns the axes of a tensor that is replicated over `axes`, with the complete gradient on each rank.
constexpr TensorAxes replicated_over(AxisSet axes) { return {.replicated_over = kReplicaAxes | axes}; }
/// Returns the axes of a tensor that is replicated over `axes`, with a partial gradient on each rank.
constexpr TensorAxes replicated_and_summed_over(AxisSet axes) {
  return {.replicated_over = kReplicaAxes | axes, .grad_summed_over = kReplicaAxes | axes};
}
/// The axes of a tensor that is sharded over the tensor ranks.
inline constexpr TensorAxes kTensorSharded{.sharded_over = Axis::kTensor};

}  // namespace ashlar::nn
