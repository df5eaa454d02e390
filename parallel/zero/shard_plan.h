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
  int64_t begin = 0, size = 0;     ///< first element and number of elements in the flat buffers
  std::vector<comm::Range> parts;  ///< part of each rank of the group over `replicas`, relative to the bucket's start
  size_t first_parameter = 0, last_parameter = 0;  ///< [first, last) of the store's parameters

  bool operator==(const Bucket&) const = default;
};

struct PlanSpec {
  mesh::MeshShape mesh;
  /// Maximum number of elements of a bucket; a larger parameter is a bucket of its own. 0: default_bucket_elems.
  int64_t bucket_elems = 0;
  optim::ShardUnit shard_unit = optim::ShardUnit::kElement;  ///< positions at which the update rule allows sharding
};

/// Returns 8M elements, or 256 * ranks^2 if a replica group has more than 181 ranks: with so many parts, the remainder
/// of a smaller bucket would be large relative to a part.
int64_t default_bucket_elems(int64_t ranks);

/// The shard of the optimizer state on each replica. Each parameter is divided among the ranks of its replica group
/// (Bucket::replicas). The plan is plain data, and equal on all replicas that hold the same slices of a stage.
struct ShardPlan {
  std::vector<Bucket> buckets;  ///< ascending; together they cover the flat buffers

  /// Returns the ranges of the optimizer shard of the rank at these coordinates.
  nn::FlatRanges owned_by(const mesh::MeshShape& mesh, const mesh::Coordinates& at) const;
};

/// Groups the parameters, in order, into buckets of parameters with equal replica axes, and divides each bucket into
/// one part per replica:
///   kElement  equal parts; the remainder is appended to the last. Parts are multiples of 64 elements, as GPU libraries
///             prefer, or of a smaller power of two if the remainder would reach 1/16 of a part. This power is at
///             least 8 (16 bytes of bf16) in a bucket of default size, and can be 1 in a small bucket.
///   kTensor   parts begin at starts of sharded tensors, so that each tensor belongs to one replica. First each bucket
///             of shared parameters is divided as evenly as possible. Then the other buckets are divided one after
///             another, the largest first, such that the replicas' loads so far are most even (least sum of squares;
///             on ties the lower replicas get less). Parts may be empty.
/// A parameter whose gradient is also summed over other ranks (a tied table, a shared KV head) is a separate bucket:
/// these ranks hold different other parameters (only the first tensor rank has the row-parallel biases), but must
/// divide the shared parameter in the same way. Vectors that the same ranks share (norms under sequence parallelism)
/// are in buckets without other parameters. ParameterStore::arrange must have been called. Source: Rajbhandari et al.
/// 2020 (arXiv:1910.02054) section 5: stage 1, and the reduce-scatter of gradients of stage 2.
ShardPlan make_plan(const nn::ParameterStore& store, const PlanSpec& spec);

}  // namespace ashlar::zero
