#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/flat_ranges.h"
#include "core/optim/update_rule.h"
#include "parallel/comm/ranges.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// A contiguous range of the flat buffers whose gradients are reduce-scattered, and whose weights are gathered, in one
/// operation over the replicas.
struct Bucket {
  AxisSet replicas;                ///< the axes along which its parameters are replicated
  int64_t begin = 0, size = 0;     ///< elements, in the flat buffers
  std::vector<comm::Range> parts;  ///< of each rank of the group over `replicas`, from the bucket's start
  size_t first_parameter = 0, last_parameter = 0;  ///< [first, last) of the store's parameters

  bool operator==(const Bucket&) const = default;
};

struct PlanSpec {
  mesh::MeshShape mesh;
  /// A bucket is closed when it has so many; a larger parameter is one alone. 0: as default_bucket_elems says.
  int64_t bucket_elems = 0;
  optim::Cut cut = optim::Cut::kElement;  ///< what the update rule bears
};

/// 8M elements; 256 * ranks^2 for more than 181 replicas, whose parts would be short beside what remains.
int64_t default_bucket_elems(int64_t ranks);

/// Which replica keeps the optimizer state of what: each parameter is divided among its own replicas. Pure data, equal
/// on all replicas of a stage's slices.
struct ShardPlan {
  std::vector<Bucket> buckets;  ///< ascending; together the whole flat buffers

  /// What a rank at this place keeps.
  nn::FlatRanges owned_by(const mesh::MeshShape& mesh, const mesh::Coordinates& at) const;
};

/// Parameters in their order, in buckets of the same replicas, each in one part a replica:
///   kElement  equal parts; what remains is the last one's. Parts are whole units of 64 elements, as libraries for GPUs
///             want them, or of a smaller power of two so that all units that remain stay below 1/16 of a part: at
///             least 8 elements (16 bytes of bf16) in a bucket of default size, down to 1 in short ones.
///   kTensor   cut where a sharded tensor begins, so that each belongs to one replica: bucket by bucket, the largest
///             first, the cut that leaves what the replicas hold so far most even (least sum of squares; of equal
///             ones the one that gives the lower replicas less). Parts may be empty.
/// A parameter whose gradient is summed over other ranks too (a tied table, a shared KV head) is a bucket alone: what
/// else these ranks hold differs (the first tensor rank has the biases of rows), yet all must cut it alike. Vectors
/// that the same ranks share (norms under sequence parallel) fill buckets of their own. The store must be arranged.
/// Source: Rajbhandari et al. 2020 (arXiv:1910.02054) section 5, stage 1 and the gradients' half of stage 2.
ShardPlan make_plan(const nn::ParameterStore& store, const PlanSpec& spec);

}  // namespace ashlar::zero
