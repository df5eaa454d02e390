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
#include "launch/training/residual_squares.h"
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
  double clip = 0;  ///< maximum gradient norm; 0: no clipping
  Recompute recompute = Recompute::kNone;
  uint64_t seed = 0;            ///< seed of initial weights and dropout
  int64_t sequence_length = 0;  ///< number of positions in the tables of rotary embeddings
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = pipeline::PipelineSchedule::k1F1B;  ///< schedule of training steps
  int64_t virtual_stages = 1;                                               ///< chunks per pipeline stage
  int64_t bucket_elems = 0;                    ///< elements of a gradient bucket; 0: chosen by the number of replicas
  std::optional<optim::ShardUnit> shard_unit;  ///< sharding of the optimizer state; absent: the optimizer's default
  std::function<void(const pipeline::Action&)> before_action;  ///< called before each pipeline action of this rank
  std::function<void()> after_node;                            ///< called after each autograd node, to report progress
  std::function<void(const pipeline::Action&)> after_action;   ///< called after each action in training, for traces
  /// For tests: `declare_sums` declares metrics as layers do; `after_block` adds to them in training steps, after the
  /// embedding and after each block.
  std::function<void(nn::LayerMetrics&)> declare_sums;
  std::function<void(const Ctx&, int64_t layers, const Tensor& rows)> after_block;
};

/// The result of a step, reduced over all ranks and equal on all of them.
struct StepResult {
  double loss = 0;    ///< mean cross-entropy of the step's valid targets
  double z_loss = 0;  ///< mean z-loss, not part of `loss`
  double mean_log_z = 0, max_log_z = 0, max_logit = 0;
  double grad_norm = 0;  ///< before clipping
  double clip_scale = 1;
  int64_t tokens = 0;  ///< number of tokens processed, whether or not their targets are valid
  int64_t valid_targets = 0;
  std::vector<std::pair<std::string, double>> layers;  ///< values of the metrics declared by layers (nn::LayerMetrics)
  /// The number of choices of each expert by all tokens of the step: [ModelConfig::expert_layers(), moe.experts], whole
  /// numbers, row i for the i-th layer that has experts (nn::ExpertCounts). Empty in a model without experts.
  std::vector<double> expert_counts;
};

/// This rank's part of the result of a step, in host memory.
struct StepReport {
  LossStats losses;                   ///< this rank's part of the sums of losses
  nn::LayerMetricValues layers;       ///< this rank's values of the metrics that layers declare
  ClipState clip;                     ///< clip state of the whole model, the same on all ranks
  std::vector<double> expert_counts;  ///< of the whole model and the global batch, the same on all ranks
};

/// This rank's part of a model, with its parameters, optimizer and training step. The trainer, benchmarks, evaluation
/// and tests use it, on one rank and on any mesh. Calls marked (all) are made by all ranks of the mesh together.
class Engine {
 public:
  /// (all) Allocates everything; weights are zero until `initialize` or a load. `mesh` must outlive the engine.
  Engine(Backend& backend, Stream& stream, mesh::Mesh& mesh, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();        ///< (all) initializes the weights from the seed
  void start_param_sync();  ///< (all) starts the all-gather of parameters over replicas; called after a load
  void wait_param_sync();   ///< waits for the all-gather of start_param_sync; call it before the host reads values

  /// A training step has four parts, the functions numbered 1 to 4, called in this order. Parts 1 to 3 queue work on
  /// the stream and do not wait.
  ///   1. (all) Runs forward and backward of this replica's micro-batches. The main gradients are then the gradients of
  /// loss + z-loss, before clipping. Both losses are means over the valid targets of all replicas (`counts`). Every
  /// replica has the same number of micro-batches of the same shape.
  void backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step, const StepCounts& counts);
  /// 2. (all) Computes the gradient norm and the clip scale. If the norm or a loss is not finite, part 3 will skip the
  /// update. Queues a copy of the step's report to the host.
  void reduce_norm();
  /// 3. (all) Clips the gradients and updates the weights. After a skipped update, no later update changes weights or
  /// optimizer state.
  void update(int64_t step, double lr);
  /// Makes the stream wait, before the next update, for the event `state_read`, which is reached when a copy of the
  /// state is complete (null: no wait). The event must live until that update.
  void update_after(Event* state_read);
  /// 4. Returns the report of the oldest step whose report was not taken yet. The host waits for it.
  StepReport take_report();
  /// Returns the result of a step. `report`: this rank's report of the step; `all`: the StepMessage reduced over all
  /// ranks; `counts`: the counts of all replicas.
  StepResult result_of(const StepReport& report, const StepMessage& all, const StepCounts& counts) const;

  /// Returns this rank's part of a step's counts. One rank per replica returns the replica's counts; the others return
  /// 0.
  StepCounts own_counts(std::span<const pipeline::MicroBatch> micro_batches) const;
  /// (all) Runs parts 1, 2 and 4. Exchanges counts before the step and losses after it, in two messages.
  StepResult forward_backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step);
  /// Returns the sum of squares of each gradient tensor before clipping, in the order of norms().names(). The gradients
  /// are those of the last step or, once a step was skipped, of the first skipped step. The host waits.
  std::vector<double> gradient_squares() const;
  /// (all) Returns the sum of squares of each tensor in `buffer`, which has the master weights or an optimizer state.
  /// The host waits, also for a running all-gather of parameters.
  std::vector<double> sums_of(const nn::FlatTensor& buffer);
  /// (all) If a loss or the gradient norm in `result` is not finite, throws AllRanksError(kNonFinite) that names the
  /// step and, if one is found, the first tensor with a non-finite gradient. The update of that step was skipped.
  void check_finite(const StepResult& result, int64_t step);
  /// (all) If a weight or an optimizer state is not finite after the update of `step`, throws
  /// AllRanksError(kNonFinite). Called before a save, because a finite gradient can still make a weight non-finite, and
  /// the losses show this only one step later or never.
  void check_state(int64_t step);

  /// (all ranks of a replica; all if the mesh has an expert axis) Adds the losses of the micro-batches to `stats`,
  /// without autograd and dropout. Only ranks of the last pipeline stage compute losses. Replicas may have different
  /// numbers of micro-batches: those with fewer compute further ones without a target for the experts of the others.
  void evaluate(std::span<const pipeline::MicroBatch> micro_batches, LossStats& stats);
  /// Like `evaluate`, but calls `at_head` on the ranks of the last stage in place of the loss: with the index of the
  /// micro-batch and the output of the last block, for Stage::score. The targets of the micro-batches are not used.
  using AtHead =
      std::function<void(const Ctx& ctx, const model::Stage& stage, int64_t micro_batch, const Tensor& rows)>;
  void score(std::span<const pipeline::MicroBatch> micro_batches, const AtHead& at_head);
  /// (all) Returns the `stats` of `evaluate`, reduced over all ranks.
  LossStats total(const LossStats& stats) const;

  /// (all) The next `backward` or `evaluate` also sums the squares of the residual stream, for residual_rms().
  void measure_residual() { measures_residual_ = true; }
  /// (all) Returns n_layers + 1 values: the root mean square of the residual stream after the embedding and after each
  /// block, over all elements of the measured micro-batches of all replicas, each of which had equally many. The host
  /// waits.
  std::vector<double> residual_rms();
  /// (all) Returns the smallest and the largest selection bias of each layer with experts; empty without such biases.
  std::vector<std::pair<double, double>> selection_bias_ranges();

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
  /// Micro-batches and the memory of those that were added.
  struct Padded {
    std::vector<pipeline::MicroBatch> batches;
    std::vector<Tensor> memory;
  };
  /// (all) Adds micro-batches without a target, until all replicas have equally many, if the mesh has an expert axis.
  Padded padded(std::span<const pipeline::MicroBatch> micro_batches);
  std::string first_non_finite(std::span<const double> sums) const;  ///< first tensor whose sum is not finite, or empty
  /// True on tensor rank 0, which reports the losses for all tensor ranks, since they have the same values. Pipeline
  /// stages before the last one report zeros.
  bool tells_losses() const { return mesh_.at()[Axis::kTensor] == 0; }
  void run(pipeline::PipelineSchedule kind, std::span<const pipeline::MicroBatch> batches, const AtHead& at_head = {});

  EngineOptions options_;
  mesh::Mesh& mesh_;
  StepScalars scalars_;  // host copy of device_scalars_
  Ctx ctx_;
  Tensor device_scalars_, clip_, stats_;  // in device memory: a StepScalars, a ClipState, a LossStats
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
  Tensor kept_;     // fp64: copy of the sums by tensor, no longer updated once a step is skipped
  struct Report {
    Tensor pinned;  // host memory: LossStats and ClipState, then the layers' metrics, then the counts of experts
    std::unique_ptr<Event> arrived;
  };
  std::vector<Report> reports_;  // kReportsAtOnce buffers, used in turn
  int64_t queued_reports_ = 0, taken_reports_ = 0;
  Event* state_read_ = nullptr;              // event that the next update waits for; null: none
  bool measures_residual_ = false;           // the next run makes residual_
  std::optional<ResidualSquares> residual_;  // of the last measured run
  pipeline::StageSchedules schedules_;
};

}  // namespace ashlar::training
