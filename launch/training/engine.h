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

/// What a model needs in order to run; `optimizer` absent: evaluation and generation only.
struct EngineOptions {
  model::ModelConfig model;
  DType dtype = DType::kFloat32;
  std::optional<optim::OptimizerOptions> optimizer;
  double clip = 0;  ///< largest gradient norm; 0 = off
  Recompute recompute = Recompute::kNone;
  uint64_t seed = 0;            ///< of initial weights and dropout
  int64_t sequence_length = 0;  ///< positions the rotary tables must cover
  bool sequence_parallel = false;
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::k1F1B;  ///< of training steps
  int64_t virtual_stages = 1;                                       ///< chunks a pipeline stage
  int64_t bucket_elems = 0;       ///< of gradients that replicas reduce together; 0: by their number
  std::optional<optim::Cut> cut;  ///< of the optimizer's state; absent: its rule's
  std::function<void(const pipeline::Action&)> before_action;  ///< sees what this rank is about to do
  std::function<void()> after_node;                            ///< sees that something got done, often
  std::function<void(const pipeline::Action&)> after_action;   ///< sees what this rank has done, for traces
  /// For tests: declares sums as layers do, and adds to them behind the embedding and each block of training steps.
  std::function<void(nn::LayerMetrics&)> declare_sums;
  std::function<void(const Ctx&, int64_t layers, const Tensor& rows)> after_block;
};

/// Of a step over all ranks, the same on each.
struct StepResult {
  double loss = 0;    ///< mean cross-entropy of the step's valid targets
  double z_loss = 0;  ///< mean z-loss, not part of `loss`
  double mean_log_z = 0, max_log_z = 0, max_logit = 0;
  double grad_norm = 0;  ///< before clipping
  double clip_scale = 1;
  int64_t tokens = 0;  ///< rows processed
  int64_t valid_targets = 0;
  std::vector<std::pair<std::string, double>> layers;  ///< what layers have declared (nn::LayerMetrics), by metric
};

/// What a step came to on this rank, as the host reads it.
struct StepReport {
  LossStats losses;              ///< this rank's share of the sums
  nn::LayerMetricValues layers;  ///< and of what layers have declared
  ClipState clip;                ///< of the model, the same on all ranks
};

/// This rank's part of a model with its parameters, optimizer and step: what trainer, benchmarks, evaluation and tests
/// run, on one rank as on any mesh. Calls marked (all) are made by all ranks of the mesh together.
class Engine {
 public:
  /// (all) Allocates everything; weights are zero until `initialize` or a load. `mesh` must outlive the engine.
  Engine(Backend& backend, Stream& stream, mesh::Mesh& mesh, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void initialize();        ///< (all) weights from the seed
  void start_param_sync();  ///< (all) after the optimizer's parts were loaded: every replica gets the others' parts
  void wait_param_sync();   ///< until they are there; before values are read otherwise than by operations

  /// A step in parts; all ranks take them in this order. The first three queue work on the stream and wait for nothing.
  /// 1. (all) Forward and backward of this replica's micro-batches: main gradients hold d(loss + z-loss), the mean over
  /// the valid targets of `counts`, those of all replicas, before clipping. Every replica brings as many micro-batches,
  /// all of one shape.
  void backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step, const StepCounts& counts);
  /// 2. (all) The norm of those gradients and what follows from it: the clip scale, and the decision to skip the update
  /// when the norm or the loss is not finite. A report of the step is on its way to the host.
  void reduce_norm();
  /// 3. (all) Clips and applies the gradients. After a skip nothing changes weights and state any more.
  void update(int64_t step, double lr);
  /// The update that follows waits, on the stream, for what still reads the state (null: nothing). The event must live
  /// until then.
  void update_after(Event* state_read);
  /// 4. What a step came to, of the steps not taken yet the first: the host waits for it.
  StepReport take_report();
  /// With the message of all ranks that had the report's losses and sums, and the counts of all.
  StepResult result_of(const StepReport& report, const StepMessage& all, const StepCounts& counts) const;

  /// This rank's share of the counts: one rank tells those of its replica.
  StepCounts own_counts(std::span<const pipeline::MicroBatch> micro_batches) const;
  /// (all) Parts 1, 2 and 4, with counts and losses exchanged one after the other.
  StepResult forward_backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step);
  /// Sums of squares of the model's gradients by tensor (norms().names()), before clipping, of the last step, or of the
  /// one that was skipped. The host waits.
  std::vector<double> gradient_squares() const;
  /// (all) Sums of squares by tensor of the weights (master) or of a state tensor. The host waits, for what replicas
  /// still gather, too.
  std::vector<double> sums_of(const nn::FlatTensor& buffer);
  /// (all) Throws AllRanksError(kNonFinite) naming step and tensor when loss or gradients are not finite: the step was
  /// skipped.
  void check_finite(const StepResult& result, int64_t step);
  /// (all) The same for weights and optimizer state after the update of `step`, before they are saved: a finite
  /// gradient may still push one out of range, which shows a step later, or never.
  void check_state(int64_t step);

  /// (all ranks of a replica) Sums loss over micro-batches without recording or dropout; the sums are on the last stage
  /// only. Replicas need not bring as many.
  void evaluate(std::span<const pipeline::MicroBatch> micro_batches, LossStats& stats);
  /// (all) What `evaluate` has summed on all ranks.
  LossStats total(const LossStats& stats) const;

  /// (all) Root mean square of the residual stream behind the embedding and behind each block, over all rows and
  /// columns of the micro-batches of all replicas, without recording or dropout: [n_layers + 1]. All are of one shape,
  /// and every replica brings as many. Costs a forward of each.
  std::vector<double> residual_rms(std::span<const pipeline::MicroBatch> batches);

  Ctx ctx() const { return ctx_; }
  mesh::Mesh& mesh() const { return mesh_; }
  /// This rank's parts of the model, in its order.
  std::span<const std::unique_ptr<model::Stage>> chunks() const { return chunks_; }
  nn::ParameterStore& store() { return store_; }
  const nn::ParameterStore& store() const { return store_; }
  optim::Optimizer* optimizer() { return optimizer_.get(); }
  const zero::GlobalNorm& norms() const { return *norms_; }          ///< for training only
  const zero::DataParallel& replicas() const { return *replicas_; }  ///< for training only
  const EngineOptions& options() const { return options_; }
  int64_t schedules_made() const { return schedules_.made(); }  ///< lists of actions computed so far

 private:
  std::string first_non_finite(std::span<const double> sums) const;  ///< a name, or empty
  bool tells_losses() const {
    return mesh_.at()[Axis::kTensor] == 0;
  }  ///< every tensor rank of the last stage has the same
  void run(pipeline::ScheduleKind kind, std::span<const pipeline::MicroBatch> batches,
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
  Tensor squares_;  // fp64: sums of squares of the model's tensors, then loss and z-loss
  Tensor kept_;     // fp64: the first of them, until a step is skipped
  struct Report {
    Tensor pinned;  // LossStats and ClipState, then the sums of layers, on the host
    std::unique_ptr<Event> arrived;
  };
  std::vector<Report> reports_;  // used in turns
  int64_t queued_reports_ = 0, taken_reports_ = 0;
  Event* state_read_ = nullptr;  // null: the state may be changed
  pipeline::StageSchedules schedules_;
};

}  // namespace ashlar::training
