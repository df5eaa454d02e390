#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"
#include "parallel/zero/shard_plan.h"

namespace ashlar::zero {

/// What replicas exchange in a step: gradients bucket by bucket while backward continues, weights after the update.
///
///   begin_step        gradients of the step before are done with
///   poll              between two parts of backward work, as often as convenient
///   finish            after the last one: the owned parts of the main gradients are sums over the replicas, the rest
///   of
///                     them is garbage
///   start_param_sync  after the update of the owned parts: the others' are on their way, each weight's `param_sync` is
///                     set, and the operation that reads it first waits for it
///   wait_param_sync   before weights are read in another way, or updated: all values are there
///
/// All replicas run the same micro-batches' worth of work, so the buckets of one group of replicas leave in one order:
/// the last layers' first. A bucket leaves when each of its weights has as many contributions as the first step taught
/// for so many micro-batches.
class DataParallel {
 public:
  /// Called by all ranks of `mesh`. It must outlive this, as must `plan`, `store` and `stream`, on which gradients are
  /// made and weights are read.
  DataParallel(const ShardPlan& plan, nn::ParameterStore& store, mesh::Mesh& mesh, Stream& stream);

  void begin_step(int64_t micro_batches);
  void poll();
  void finish();
  void start_param_sync();
  void wait_param_sync();

  int64_t late_buckets() const { return late_; }  ///< of the last step: left in `finish` only

 private:
  /// The buckets of one group of replicas, and how many of them have not left yet: the first ones.
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
  std::vector<int64_t> uses_;  // contributions of a micro-batch to each parameter; empty before the first step
  int64_t micro_batches_ = 0;
  int64_t late_ = 0;
  std::vector<comm::Work> reducing_;
  std::vector<std::unique_ptr<ParamSync>> syncing_;  // of the weights, bucket by bucket
};

}  // namespace ashlar::zero
