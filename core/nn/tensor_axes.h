#pragma once

#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// Sharding of a tensor over the axes of the mesh. An axis in both `sharded_over` and `replicated_over` has several
/// ranks with the same part (a KV head on several tensor ranks).
struct TensorAxes {
  AxisSet sharded_over;                     ///< sharded: ranks along these axes may hold different parts
  AxisSet replicated_over = kReplicaAxes;   ///< ranks along these axes may hold the same part
  AxisSet grad_summed_over = kReplicaAxes;  ///< ranks along these axes with the same part have partial gradients

  /// The axes of sums that remain after the sum over replicas.
  AxisSet summed_in_replica() const { return grad_summed_over - kReplicaAxes; }
  bool operator==(const TensorAxes&) const = default;
};
/// A tensor that every rank along `axes` holds completely, with its complete gradient.
constexpr TensorAxes replicated_over(AxisSet axes) { return {.replicated_over = kReplicaAxes | axes}; }
/// A tensor that every rank along `axes` holds completely, with a partial gradient on each.
constexpr TensorAxes replicated_and_summed_over(AxisSet axes) {
  return {.replicated_over = kReplicaAxes | axes, .grad_summed_over = kReplicaAxes | axes};
}
/// A tensor sharded over the tensor ranks.
inline constexpr TensorAxes kTensorSharded{.sharded_over = Axis::kTensor};

}  // namespace ashlar::nn
