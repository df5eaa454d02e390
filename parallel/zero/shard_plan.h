#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/flat_ranges.h"
#include "core/optim/update_rule.h"
#include "parallel/comm/ranges.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// A contiguous range of the flat buffers whose gradients are reduce-scattered, and whose weights are all-gathered, in
/// one operation over the replicas.
struct Bucket {
  AxisSet replicas;                ///< the axes over which its parameters are replicated
  int64_t begin = 0, size = 0;     ///< elements, in the flat buffers
  std::vector<comm::Range> parts;  ///< part of each rank of the group over `replicas`, relative to the bucket's start
  size_t first_parameter = 0, last_parameter = 0;  ///< [first, last) of the store's parameters

  bool operator==(const Bucket&) const = default;
};

struct PlanSpec {
  mesh::MeshShape mesh;
  /// Minimum size at which a bucket is closed; a larger parameter is a bucket alone. 0: default_bucket_elems.
  int64_t bucket_elems = 0;
  optim::ShardUnit shard_unit = optim::ShardUnit::kElement;  ///< positions at which the update rule allows sharding
};

/// 8M elements. For more than 181 replicas, where parts would be small relative to the remainder, 256 * ranks^2.
int64_t default_bucket_elems(int64_t ranks);

/// The shard of the optimizer state on each replica. Each parameter is divided among its own replicas. The plan is
/// plain data, and equal on all replicas that hold the same slices of a stage.
struct ShardPlan {
  std::vector<Bucket> buckets;  ///< ascending; together the whole flat buffers

  /// The ranges owned by the rank at these coordinates.
  nn::FlatRanges owned_by(const mesh::MeshShape& mesh, const mesh::Coordinates& at) const;
};

/// Parameters in order, in buckets with equal replicas, each with one part per replica:
///   kElement  equal parts; the remainder is appended to the last. Parts are multiples of 64 elements, as GPU libraries
///             prefer, or of a smaller power of two if the remainder would reach 1/16 of a part: at least 8
///             elements (16 bytes of bf16) in a bucket of default size, down to 1 in small ones.
///   kTensor   divided at starts of sharded tensors, so that each tensor belongs to one replica: bucket by bucket, the
///             largest first, the division that makes the replicas' loads so far most even (least sum of squares; on
///             ties the lower replicas get less). Parts may be empty.
/// A parameter whose gradient is also summed over other ranks (a tied table, a shared KV head) is a separate bucket:
/// these ranks hold different other parameters (the first tensor rank has the row-parallel biases), but must divide
/// this one equally. Vectors shared by the same ranks (norms under sequence parallelism) have separate buckets. The
/// store must be arranged. Source: Rajbhandari et al. 2020 (arXiv:1910.02054) section 5, stage 1 and the gradients'
/// half of stage 2.
ShardPlan make_plan(const nn::ParameterStore& store, const PlanSpec& spec);

}  // namespace ashlar::zero
