#include "launch/training/engine.h"

#include <algorithm>
#include <cmath>

#include "launch/training/layout.h"
#include "parallel/comm/host.h"
#include "parallel/comm/together.h"
#include "parallel/pipeline/executor.h"
#include "parallel/tensor/shared_gradients.h"

namespace ashlar::training {

Engine::Engine(Backend& backend, Stream& stream, mesh::Mesh& mesh, const EngineOptions& options)
    : options_(options),
      mesh_(mesh),
      ctx_{.backend = backend,
           .stream = stream,
           .dtype = options.dtype,
           .recompute = options.recompute,
           .scalars = &scalars_},
      tp_{.group = &mesh.tensor(), .kv_group = &mesh.kv_sharers(), .sequence_parallel = options.sequence_parallel} {
  const int64_t stages = mesh.shape().pipeline;
  const pipeline::Partition cut = partition_of(
      options_.model,
      {.sequence_length = options_.sequence_length, .stages = stages, .virtual_stages = options_.virtual_stages});
  for (int64_t c = 0; c < options_.virtual_stages; ++c) {
    const model::StageRange& range = cut.chunks[pipeline::model_chunk(mesh.at().pipeline, c, stages)];
    chunks_.push_back(std::make_unique<model::Stage>(store_, options_.model, range, tp_));
  }
  store_.allocate(ctx_, options_.optimizer.has_value());
  if (options_.optimizer) {
    plan_ = zero::make_plan(store_, {.ranks = mesh.shape().data, .bucket_elems = options_.bucket_elems});
    optimizer_.emplace(ctx_, store_, *options_.optimizer, plan_.owned_by(mesh.at().data));
    replicas_.emplace(plan_, store_, mesh.data());
    norms_.emplace(store_, mesh.all(), mesh.control());
  }
  for (const auto& chunk : chunks_) chunk->make_tables(ctx_, options_.sequence_length);
}

void Engine::initialize() {
  if (!optimizer_) return store_.initialize(ctx_, options_.seed, store_.values());
  optimizer_->initialize(ctx_, options_.seed);
  share_weights();
}

void Engine::share_weights() { replicas_->start_weights(); }

void Engine::wait_weights() {
  if (replicas_) replicas_->wait_weights();
}

void Engine::run(pipeline::ScheduleKind kind, std::span<const pipeline::MicroBatch> batches, LossStats& stats,
                 const model::BlockObserver& after_block) {
  const pipeline::ScheduleSpec spec{.kind = kind,
                                    .stages = mesh_.shape().pipeline,
                                    .micro_batches = static_cast<int64_t>(batches.size()),
                                    .virtual_stages = options_.virtual_stages};
  pipeline::RunnerHooks hooks{.after_node = {}, .after_block = after_block};
  const bool training = kind != pipeline::ScheduleKind::kForwardOnly;
  if (training) {
    replicas_->begin_step(spec.micro_batches);
    hooks.after_node = [&] { replicas_->poll(); };
    hooks.after_block = [&](int64_t, const Tensor&) { mesh_.all().progress(); };  // weights arrive during forward
  }
  Ctx ctx = ctx_;
  ctx.dropout.seed = options_.seed;
  pipeline::ChunkRunner runner(ctx, chunks_, batches, stats, std::move(hooks));
  pipeline::execute(ctx, {.spec = spec,
                          .stream = pipeline::make_schedule(spec, mesh_.at().pipeline),
                          .stages = mesh_.pipeline(),
                          .runner = runner,
                          .rows = {tp_.local_rows(batches.front().view.rows()), options_.model.d_model},
                          .after = training ? options_.after_action : nullptr});
}

StepResult Engine::forward_backward(std::span<const pipeline::MicroBatch> micro_batches, int64_t step) {
  // 1. One divisor for the whole step, known before the first backward: means of micro-batches are never averaged.
  int64_t counts[2] = {};  // tokens, valid targets: those of each replica once
  for (const pipeline::MicroBatch& batch : micro_batches) {
    if (!mesh_.first_stage() || mesh_.at().tensor != 0) continue;
    counts[0] += batch.view.rows();
    counts[1] += batch.valid_targets;
  }
  mesh_.control().reduce({.label = "counts of a step", .int_sums = counts}).wait();
  StepResult result;
  result.tokens = counts[0];
  result.valid_targets = counts[1];
  const double valid = static_cast<double>(std::max<int64_t>(result.valid_targets, 1));
  scalars_.inv_valid_tokens = 1.0 / valid;
  scalars_.philox_step = static_cast<uint64_t>(step);

  // 2. Gradients: over micro-batches, then replicas, then whoever holds the same piece.
  LossStats own;
  run(options_.schedule, micro_batches, own);
  replicas_->finish();
  tensor::sum_shared_gradients(ctx_, store_, optimizer_->ranges(), mesh_);

  // 3. What all ranks know together.
  const LossStats stats = total(own);
  result.loss = stats.loss / valid;
  result.z_loss = stats.z_loss / valid;
  result.mean_log_z = stats.log_z / valid;
  result.max_log_z = stats.max_log_z;
  result.max_logit = stats.max_logit;
  last_norm_ = norms_->of(ctx_, optimizer_->ranges(), {.data = store_.grads()});
  result.grad_norm = last_norm_.norm;
  return result;
}

void Engine::check_finite(const StepResult& result, int64_t step) const {
  const std::string& name = last_norm_.first_non_finite;
  std::string problem;
  if (!std::isfinite(result.loss) || !std::isfinite(result.z_loss)) {
    problem = str_cat("the loss is ", result.loss, name.empty() ? "" : ", first non-finite gradient ", name, ";");
  } else if (!std::isfinite(result.grad_norm)) {
    problem = str_cat("the gradient of ", name.empty() ? "all tensors together" : name, " is not finite (loss ",
                      result.loss, ");");
  } else {
    return;
  }
  // The update before may have been the one that went out of range, with every gradient still finite.
  const optim::GradNorm weights = norms_->of(ctx_, optimizer_->ranges(), optimizer_->master());
  const std::string state = weights.first_non_finite.empty() ? " the weights were not updated"
                                                             : str_cat(" the weights of ", weights.first_non_finite,
                                                                       " are not finite since an earlier update");
  throw comm::SharedError(ExitCode::kNonFinite, "train",
                          str_cat("step ", step, ": ", problem, state,
                                  "; nothing was saved; lower optimizer.lr or resume from an earlier checkpoint"));
}

void Engine::update(StepResult& result, int64_t step, double lr) {
  ASHLAR_CHECK(optimizer_.has_value(), "an engine without optimizer cannot update");
  const auto& o = optimizer_->options();
  const double t = static_cast<double>(step + 1);
  scalars_.lr = lr;
  scalars_.beta1_correction = 1 - std::pow(o.beta1, t);
  scalars_.beta2_correction = 1 - std::pow(o.beta2, t);
  result.clip_scale = options_.clip > 0 && result.grad_norm > options_.clip ? options_.clip / result.grad_norm : 1.0;
  scalars_.clip_scale = result.clip_scale;
  wait_weights();
  optimizer_->step(ctx_);
  share_weights();
}

void Engine::evaluate(std::span<const pipeline::MicroBatch> micro_batches, LossStats& stats) {
  if (!micro_batches.empty()) run(pipeline::ScheduleKind::kForwardOnly, micro_batches, stats);
}

LossStats Engine::total(const LossStats& stats) const {
  // Every tensor rank of the last stage has the same sums, the other stages have none.
  const LossStats mine = mesh_.at().tensor == 0 ? stats : LossStats{};
  double sums[] = {mine.loss, mine.z_loss, mine.log_z};
  double maxima[] = {mine.max_log_z, mine.max_logit};
  int64_t valid[] = {mine.valid};
  mesh_.control().reduce({.label = "losses", .sums = sums, .maxima = maxima, .int_sums = valid}).wait();
  return {.loss = sums[0],
          .z_loss = sums[1],
          .log_z = sums[2],
          .max_log_z = maxima[0],
          .max_logit = maxima[1],
          .valid = valid[0]};
}

std::vector<double> Engine::residual_rms(const pipeline::MicroBatch& batch) {
  std::vector<double> rms(options_.model.n_layers + 1, 0.0);
  LossStats unused;
  run(pipeline::ScheduleKind::kForwardOnly, {&batch, 1}, unused, [&](int64_t layers, const Tensor& rows) {
    const bool counted = options_.sequence_parallel || mesh_.at().tensor == 0;
    if (counted) rms[layers] = optim::sum_squares(ctx_, rows);
  });
  comm::sum_all(mesh_.control(), rms);
  const double elements = static_cast<double>(mesh_.shape().data * batch.view.rows() * options_.model.d_model);
  for (double& value : rms) value = std::sqrt(value / elements);
  return rms;
}

}  // namespace ashlar::training
