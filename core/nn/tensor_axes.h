#pragma once

#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// Where a tensor's parts are, by axes of the mesh. Along an axis of both `cut_over` and `replicated_over` several
/// ranks hold each part (a KV head of several tensor ranks).
struct TensorAxes {
  AxisSet cut_over;                         ///< ranks along these may hold other parts
  AxisSet replicated_over = kReplicaAxes;   ///< ranks along these may hold the same part
  AxisSet grad_summed_over = kReplicaAxes;  ///< each rank of the same part along these has a part of the gradient's sum

  /// The sums that remain when the replicas have summed.
  AxisSet summed_in_replica() const { return grad_summed_over - kReplicaAxes; }
  bool operator==(const TensorAxes&) const = default;
};
/// A tensor that every rank along `axes` holds whole, with its whole gradient.
constexpr TensorAxes replicated_over(AxisSet axes) { return {.replicated_over = kReplicaAxes | axes}; }
/// The same where each of these ranks has a part of the gradient's sum.
constexpr TensorAxes replicated_and_summed_over(AxisSet axes) {
  return {.replicated_over = kReplicaAxes | axes, .grad_summed_over = kReplicaAxes | axes};
}
/// A tensor of which each tensor rank holds a part of its own.
inline constexpr TensorAxes kTensorCut{.cut_over = Axis::kTensor};

}  // namespace ashlar::nn
