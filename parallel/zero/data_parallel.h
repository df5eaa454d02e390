#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"
#include "parallel/zero/shard_plan.h"

namespace ashlar::zero {

/// Communication of data-parallel replicas in a step: gradients bucket by bucket during backward, weights after the
/// update. Calls in a step:
///
///   begin_step        when the gradients of the previous step are no longer needed
///   poll              between two parts of backward work, as often as convenient
///   finish            after the last backward: the main gradients of this rank's shard are then sums over the
///                     replicas; all other main gradients are undefined
///   start_param_sync  after the update of this rank's shard: starts the all-gather, and sets each weight's
///                     `param_sync`, for which the first operation that reads the weight waits
///   wait_param_sync   before other reads of weights, and before an update: waits until all weights have arrived
///
/// All replicas run the same number of micro-batches, and reduce the buckets of a replica group in the same fixed
/// order: the buckets of the last layers first. A bucket is reduced when it is the next in this order and each of its
/// parameters has received all its gradient contributions. The number of contributions per micro-batch is not known
/// before the first step, which counts them and therefore reduces all buckets in `finish`.
class DataParallel {
 public:
  /// Called by all ranks of `mesh`. Gradients are computed and weights are read on `stream`. All arguments must outlive
  /// this object.
  DataParallel(const ShardPlan& plan, nn::ParameterStore& store, mesh::Mesh& mesh, Stream& stream);

  void begin_step(int64_t micro_batches);
  void poll();
  void finish();
  void start_param_sync();
  void wait_param_sync();

  int64_t late_buckets() const { return late_; }  ///< number of buckets that the last step reduced only in `finish`

 private:
  /// The buckets of one group of replicas. The first `waiting` buckets are not reduced yet.
  struct Queue {
    comm::Communicator* replicas = nullptr;
    std::vector<const Bucket*> buckets;  ///< ascending
    size_t waiting = 0;
  };
  bool complete(const Bucket& bucket) const;
  void reduce_next(Queue& queue);
  bool all_left() const;

  const ShardPlan& plan_;
  nn::ParameterStore& store_;
  comm::Communicator& all_;
  Stream& stream_;
  std::map<AxisSet, Queue> queues_;
  std::vector<int64_t> uses_;  // contributions per micro-batch to each parameter; empty before the first step
  int64_t micro_batches_ = 0;
  int64_t late_ = 0;
  std::vector<comm::Work> reducing_;
  std::vector<std::unique_ptr<ParamSync>> syncing_;  // pending all-gathers of weights, by bucket
};

}  // namespace ashlar::zero
