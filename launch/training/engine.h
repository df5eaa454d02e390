#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/optim/optimizer.h"
#include "launch/training/device_batch.h"
#include "parallel/comm/self_comm.h"
#include "parallel/model/stage.h"

namespace ashlar::training {

/// What a model needs in order to run; `optimizer` absent: evaluation and generation only.
struct EngineOptions {
  model::ModelConfig model;
  DType dtype = DType::kFloat32;
  std::optional<optim::AdamWOptions> optimizer;
  double clip = 0;  ///< largest gradient norm; 0 = off
  Recompute recompute = Recompute::kNone;
  uint64_t seed = 0;                       ///< of initial weights and dropout
  int64_t sequence_length = 0;             ///< positions the rotary tables must cover
  tensor::TensorParallel tensor_parallel;  ///< its group must outlive the engine; without one: this rank alone
};

struct StepResult {
  double loss = 0;    ///< mean cross-entropy of the step's valid targets
  double z_loss = 0;  ///< mean z-loss, not part of `loss`
  double mean_log_z = 0, max_log_z = 0, max_logit = 0;
  double grad_norm = 0;  ///< before clipping
  double clip_scale = 1;
  int64_t tokens = 0;  ///< rows processed
  int64_t valid_targets = 0;
};

/// A model with its parameters, optimizer and step: what trainer, benchmarks, evaluation and tests run.
class Engine {
 public:
  /// Allocates everything; weights are zero until `initialize` or a load.
  Engine(Backend& backend, Stream& stream, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();  ///< weights from the seed

  /// Forward and backward of a step's micro-batches: main gradients hold d(loss + z-loss), the mean over all valid
  /// targets of the step, before clipping.
  StepResult forward_backward(std::span<const DeviceBatch> micro_batches, int64_t step);
  /// Clips and applies what forward_backward left. Call only when its result is finite.
  void update(StepResult& result, int64_t step, double lr);
  /// Of the last forward_backward, before clipping, with the sums of each piece.
  const optim::GradNorm& gradient_norm() const { return last_norm_; }
  /// Throws Error(kNonFinite) naming step and tensor when loss or gradients are not finite.
  void check_finite(const StepResult& result, int64_t step) const;

  /// Sums loss over a batch without recording or dropout.
  void evaluate(const DeviceBatch& batch, LossStats& stats);

  /// Root mean square of the residual stream after the embedding and after each block, over all rows and columns of
  /// the batch, without recording or dropout: [n_layers + 1]. Costs one forward through the blocks.
  std::vector<double> residual_rms(const DeviceBatch& batch) const;

  Ctx ctx() const { return ctx_; }
  const model::Stage& stage() const { return *stage_; }
  nn::ParameterStore& store() { return store_; }
  const nn::ParameterStore& store() const { return store_; }
  optim::Optimizer* optimizer() { return optimizer_ ? &*optimizer_ : nullptr; }
  const EngineOptions& options() const { return options_; }

 private:
  EngineOptions options_;
  comm::SelfComm self_{"tensor"};
  StepScalars scalars_;
  Ctx ctx_;
  nn::ParameterStore store_;
  std::unique_ptr<model::Stage> stage_;
  std::optional<optim::Optimizer> optimizer_;
  optim::GradNorm last_norm_;
};

}  // namespace ashlar::training
