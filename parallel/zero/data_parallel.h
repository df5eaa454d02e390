#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"
#include "parallel/zero/shard_plan.h"

namespace ashlar::zero {

/// Communication of replicas in a step: gradients bucket by bucket during backward, weights after the update.
///
///   begin_step        the gradients of the previous step are no longer needed
///   poll              between two parts of backward work, as often as convenient
///   finish            after the last one: the owned parts of the main gradients are sums over the replicas, the
///                     rest is undefined
///   start_param_sync  after the update of the owned parts: starts the all-gather, and sets each weight's
///                     `param_sync`, for which the first operation that reads the weight waits
///   wait_param_sync   before other reads of weights, or an update: all values have arrived
///
/// All replicas run the same number of micro-batches, so they reduce the buckets of a group in the same order: those of
/// the last layers first. A bucket is reduced when each of its weights has as many contributions as it had in the first
/// step for this number of micro-batches.
class DataParallel {
 public:
  /// Called by all ranks of `mesh`. It must outlive this object, as must `plan`, `store` and `stream`, on which
  /// gradients are computed and weights are read.
  DataParallel(const ShardPlan& plan, nn::ParameterStore& store, mesh::Mesh& mesh, Stream& stream);

  void begin_step(int64_t micro_batches);
  void poll();
  void finish();
  void start_param_sync();
  void wait_param_sync();

  int64_t late_buckets() const { return late_; }  ///< buckets of the last step reduced only in `finish`

 private:
  /// The buckets of one group of replicas, and how many of them are not reduced yet. These are the first ones.
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
