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

/// Inputs of a micro-batch for every stage: rows to embed, targets, and the offset of its dropout masks.
struct MicroBatch {
  model::BatchView view;
  int64_t first_sample = 0;   ///< global index of the first sample, for the dropout masks
  int64_t valid_targets = 0;  ///< number of valid targets
};

/// Callbacks during computation; each may be empty.
struct RunnerHooks {
  std::function<void()> after_node;  ///< called between parts of backward, to progress communication
  std::function<void()> progress;    ///< called in forward, after the embedding and after each block
  model::BlockObserver after_block;  ///< called then with the residual stream
  /// In evaluation: called on the stage with the head in place of its loss, with the output of the last block.
  std::function<void(const Ctx& ctx, const model::Stage& stage, int64_t micro_batch, const Tensor& rows)> at_head;
};

/// Runs the chunks of a stage, and stores their tapes and deferred weight gradients. Gradients are accumulated into the
/// main gradients of the parameters, and losses of the last chunk into `stats`. The only boundary tensor between chunks
/// is the residual stream.
class ChunkRunner final : public Runner {
 public:
  /// `chunks` are the chunks of this stage, in model order. `ctx` gives dtype, recomputation, scalars and the dropout
  /// seed; the runner sets its tape and dropout samples. All arguments must outlive the runner.
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
  std::map<std::pair<int64_t, int64_t>, Flight> flights_;  // key: (chunk, micro-batch)
};

}  // namespace ashlar::pipeline
