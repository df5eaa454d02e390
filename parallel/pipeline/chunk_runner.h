#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "core/autograd/tape.h"
#include "parallel/model/stage.h"
#include "parallel/pipeline/runner.h"

namespace ashlar::pipeline {

/// What a micro-batch brings to every stage: rows to look up, targets, and where its dropout masks begin.
struct MicroBatch {
  model::BatchView view;
  int64_t first_sample = 0;   ///< global index
  int64_t valid_targets = 0;  ///< that count
};

/// What others want to know of the work while it runs; each may be empty.
struct RunnerHooks {
  std::function<void()> after_node;  ///< called between two pieces of backward work: communication progresses meanwhile
  model::BlockObserver after_block;  ///< sees the residual stream of forward
};

/// Runs the model: holds tapes and queued weight gradients; gradients go to the parameters' main gradients, losses of
/// the last chunk to the stats. One tensor crosses from chunk to chunk, the residual stream.
class ChunkRunner final : public Runner {
 public:
  /// `chunks` are this stage's, in the order of the model. `ctx` carries dtype, recomputation, scalars and the seed of
  /// dropout; tapes and samples are filled in here. Everything must outlive the runner.
  ChunkRunner(const Ctx& ctx, std::span<const std::unique_ptr<model::Stage>> chunks,
              std::span<const MicroBatch> micro_batches, const MutView& stats, RunnerHooks hooks = {});

  BoundaryValues forward(int64_t chunk, int64_t micro_batch, const BoundaryValues& inputs, bool training) override;
  BoundaryValues backward(int64_t chunk, int64_t micro_batch, const BoundaryValues& grads, bool defer) override;
  void backward_weight(int64_t chunk, int64_t micro_batch) override;

 private:
  struct Flight {
    std::unique_ptr<Tape> tape;
    Var input, output;
    WeightWork work;
  };
  Flight& flight(int64_t chunk, int64_t micro_batch);

  Ctx ctx_;
  std::span<const std::unique_ptr<model::Stage>> chunks_;
  std::span<const MicroBatch> micro_batches_;
  MutView stats_;
  RunnerHooks hooks_;
  std::map<std::pair<int64_t, int64_t>, Flight> flights_;  // by (chunk, micro-batch)
};

}  // namespace ashlar::pipeline
