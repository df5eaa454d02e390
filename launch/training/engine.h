#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/optim/optimizer.h"
#include "launch/training/device_batch.h"
#include "launch/training/global_layer_metrics.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/stage.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/zero/data_parallel.h"
#include "parallel/zero/global_norm.h"
#include "parallel/zero/shared_tensors.h"

namespace ashlar::training {

/// Options of an engine. Without `optimizer` only evaluation and generation are possible.
struct EngineOptions {
  model::ModelConfig model;
  DType dtype = DType::kFloat32;
  std::optional<optim::OptimizerOptions> optimizer;
  double clip = 0;  ///< largest gradient norm; 0 = off
  Recompute recompute = Recompute::kNone;
  uint64_t seed = 0;            ///< seed of initial weights and dropout
  int64_t sequence_length = 0;  ///< positions the rotary tables must cover
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = pipeline::PipelineSchedule::k1F1B;  ///< schedule of training steps
  int64_t virtual_stages = 1;                                               ///< chunks per pipeline stage
  int64_t bucket_elems = 0;                    ///< size of a gradient bucket; 0: chosen by the number of replicas
  std::optional<optim::ShardUnit> shard_unit;  ///< sharding of the optimizer state; absent: that of its rule
  std::function<void(const pipeline::Action&)> before_action;  ///< called before each action of this rank
  std::function<void()> after_node;                            ///< called after each autograd node: a sign of progress
  std::function<void(const pipeline::Action&)> after_action;   ///< called after each action of this rank, for traces
  /// For tests: declares sums as layers do, and adds to them after the embedding and after each block in training
  /// steps.
  std::function<void(nn::LayerMetrics&)> declare_sums;
  std::function<void(const Ctx&, int64_t layers, const Tensor& rows)> after_block;
};

/// The result of a step over all ranks. It is equal on all of them.
struct StepResult {
  double loss = 0;    ///< mean cross-entropy of the step's valid targets
  double z_loss = 0;  ///< mean z-loss, not part of `loss`
  double mean_log_z = 0, max_log_z = 0, max_logit = 0;
  double grad_norm = 0;  ///< before clipping
  double clip_scale = 1;
  int64_t tokens = 0;  ///< rows processed
  int64_t valid_targets = 0;
  std::vector<std::pair<std::string, double>> layers;  ///< values of the metrics declared by layers (nn::LayerMetrics)
};

/// The result of a step on this rank, on the host.
struct StepReport {
  LossStats losses;              ///< this rank's part of the sums
  nn::LayerMetricValues layers;  ///< this rank's part of the sums that layers declare
  ClipState clip;                ///< clip state of the whole model, the same on all ranks
};

/// This rank's part of a model, with its parameters, optimizer and training step. The trainer, benchmarks, evaluation
/// and tests use it, on one rank and on any mesh. Calls marked (all) are made by all ranks of the mesh together.
class Engine {
 public:
  /// (all) Allocates everything; weights are zero until `initialize` or a load. `mesh` must outlive the engine.
  Engine(Backend& backend, Stream& stream, mesh::Mesh& mesh, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();        ///< (all) weights from the seed
  void start_param_sync();  ///< (all) after loading optimizer shards: gathers the parameters over replicas
  void wait_param_sync();   ///< waits for it; needed before the host reads values

  /// A step in parts, called by all ranks in this order. The first three queue work on the stream and do not wait.
  /// 1. (all) Forward and backward of this replica's micro-batches. Main gradients then hold d(loss + z-loss) before
  /// clipping: the mean over the valid targets of `counts`, which counts all replicas. Every replica has the same
  /// number of micro-batches of the same shape.
  void backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step, const StepCounts& counts);
  /// 2. (all) The norm of those gradients, the clip scale, and the decision to skip the update when the norm or the
  /// loss is not finite. Queues a copy of the report of the step to the host.
  void reduce_norm();
  /// 3. (all) Clips and applies the gradients. After a skip no later update changes weights or state.
  void update(int64_t step, double lr);
  /// `state_read` is the event of a reader of the state (null: none). The next update waits for it on the stream; the
  /// event must live until then.
  void update_after(Event* state_read);
  /// 4. The report of the oldest step that was not read yet. The host waits for it.
  StepReport take_report();
  /// The result of a step, from its report, the message `all` reduced over all ranks, and the counts of all.
  StepResult result_of(const StepReport& report, const StepMessage& all, const StepCounts& counts) const;

  /// This rank's part of the counts. One rank per replica reports the replica's counts; the others report 0.
  StepCounts own_counts(std::span<const pipeline::MicroBatch> micro_batches) const;
  /// (all) Parts 1, 2 and 4, with two separate exchanges for counts and losses.
  StepResult forward_backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step);
  /// Sums of squares of the model's gradients by tensor (norms().names()), before clipping: of the last step, or of the
  /// skipped step. The host waits.
  std::vector<double> gradient_squares() const;
  /// (all) Sums of squares by tensor of the master weights or of a state tensor. The host waits, also for a running
  /// parameter gather.
  std::vector<double> sums_of(const nn::FlatTensor& buffer);
  /// (all) Throws AllRanksError(kNonFinite) with step and tensor when loss or gradients are not finite; the step was
  /// skipped.
  void check_finite(const StepResult& result, int64_t step);
  /// (all) Checks that weights and optimizer state are finite after the update of `step`, before they are saved; throws
  /// as check_finite. A finite gradient can still make a weight non-finite, which would show a step later or never.
  void check_state(int64_t step);

  /// (all ranks of a replica) Adds the losses of micro-batches, without recording or dropout; the last stage has the
  /// sums. Replicas may have different numbers of micro-batches.
  void evaluate(std::span<const pipeline::MicroBatch> micro_batches, LossStats& stats);
  /// (all) The sums of `evaluate` over all ranks.
  LossStats total(const LossStats& stats) const;

  /// (all) Root mean square of the residual stream after the embedding and after each block, over all rows and columns
  /// of the micro-batches of all replicas, without recording or dropout: [n_layers + 1]. Every replica has the same
  /// number of micro-batches of the same shape. Costs one forward pass per micro-batch.
  std::vector<double> residual_rms(std::span<const pipeline::MicroBatch> batches);

  Ctx ctx() const { return ctx_; }
  mesh::Mesh& mesh() const { return mesh_; }
  /// This rank's model chunks, in execution order.
  std::span<const std::unique_ptr<model::Stage>> chunks() const { return chunks_; }
  nn::ParameterStore& store() { return store_; }
  const nn::ParameterStore& store() const { return store_; }
  optim::Optimizer* optimizer() { return optimizer_.get(); }
  const zero::GlobalNorm& norms() const { return *norms_; }          ///< training only
  const zero::DataParallel& replicas() const { return *replicas_; }  ///< training only
  const EngineOptions& options() const { return options_; }
  int64_t schedules_made() const { return schedules_.made(); }  ///< number of action lists computed so far

 private:
  std::string first_non_finite(std::span<const double> sums) const;  ///< a name, or empty
  bool tells_losses() const {
    return mesh_.at()[Axis::kTensor] == 0;
  }  ///< true on one tensor rank of the last stage: the others have the same values
  void run(pipeline::PipelineSchedule kind, std::span<const pipeline::MicroBatch> batches,
           const model::BlockObserver& after_block = {});

  EngineOptions options_;
  mesh::Mesh& mesh_;
  StepScalars scalars_;  // the host's copy of what the device holds
  Ctx ctx_;
  Tensor device_scalars_, clip_, stats_;  // StepScalars, ClipState, LossStats
  nn::ParameterStore store_;
  tensor::TensorParallel tp_;
  std::vector<std::unique_ptr<model::Stage>> chunks_;
  // For training only:
  std::optional<zero::SharedTensors> shared_;
  zero::ShardPlan plan_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<zero::DataParallel> replicas_;
  std::optional<zero::GlobalNorm> norms_;
  std::optional<GlobalLayerMetrics> sums_;
  Tensor squares_;  // fp64: sums of squares by tensor, then loss and z-loss
  Tensor kept_;     // fp64: copy of the sums by tensor, frozen when a step is skipped
  struct Report {
    Tensor pinned;  // LossStats and ClipState, then the sums of layers, on the host
    std::unique_ptr<Event> arrived;
  };
  std::vector<Report> reports_;  // used alternately
  int64_t queued_reports_ = 0, taken_reports_ = 0;
  Event* state_read_ = nullptr;  // null: the state may be changed now
  pipeline::StageSchedules schedules_;
};

}  // namespace ashlar::training
