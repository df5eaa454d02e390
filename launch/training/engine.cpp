#include "launch/training/engine.h"

#include <algorithm>
#include <cmath>

namespace ashlar::training {

Engine::Engine(Backend& backend, Stream& stream, const EngineOptions& options)
    : options_(options),
      ctx_{.backend = backend,
           .stream = stream,
           .dtype = options.dtype,
           .recompute = options.recompute,
           .scalars = &scalars_} {
  if (options_.tensor_parallel.group == nullptr) options_.tensor_parallel.group = &self_;
  stage_ = std::make_unique<model::Stage>(store_, options_.model, model::StageRange::whole(options_.model),
                                          options_.tensor_parallel);
  store_.allocate(ctx_, options_.optimizer.has_value());
  if (options_.optimizer) optimizer_.emplace(ctx_, store_, *options_.optimizer, nn::SlabParts::whole(store_));
  stage_->make_tables(ctx_, options_.sequence_length);
}

void Engine::initialize() {
  if (optimizer_) {
    optimizer_->initialize(ctx_, options_.seed);
  } else {
    store_.initialize(ctx_, options_.seed, store_.values());
  }
}

StepResult Engine::forward_backward(std::span<const DeviceBatch> micro_batches, int64_t step) {
  StepResult result;
  for (const DeviceBatch& batch : micro_batches) {
    result.tokens += batch.view().rows();
    result.valid_targets += batch.valid_targets();
  }
  // One divisor for the whole step, known before the first backward: means of micro-batches are never averaged.
  scalars_.inv_valid_tokens = 1.0 / static_cast<double>(std::max<int64_t>(result.valid_targets, 1));
  scalars_.philox_step = static_cast<uint64_t>(step);
  store_.begin_step();

  LossStats stats;
  for (const DeviceBatch& batch : micro_batches) {
    Tape tape(ctx_.backend, ctx_.stream);
    Ctx ctx = ctx_;
    ctx.tape = &tape;
    ctx.dropout = {.enabled = true,
                   .seed = options_.seed,
                   .first_sample = batch.first_sample(),
                   .sequence_length = batch.view().T};
    stage_->loss(ctx, stage_->blocks(ctx, stage_->embed(ctx, batch.view()), batch.view()), batch.view(), stats);
    tape.backward();
  }
  const double valid = static_cast<double>(std::max<int64_t>(result.valid_targets, 1));
  result.loss = stats.loss / valid;
  result.z_loss = stats.z_loss / valid;
  result.mean_log_z = stats.log_z / valid;
  result.max_log_z = stats.max_log_z;
  result.max_logit = stats.max_logit;
  last_norm_ = optim::grad_norm(ctx_, store_, store_.grads());
  result.grad_norm = last_norm_.norm;
  return result;
}

void Engine::check_finite(const StepResult& result, int64_t step) const {
  if (!std::isfinite(result.loss) || !std::isfinite(result.z_loss)) {
    throw Error(ExitCode::kNonFinite, "train",
                str_cat("step ", step, ": the loss is ", result.loss,
                        (last_norm_.first_non_finite.empty() ? "" : ", first non-finite gradient "),
                        last_norm_.first_non_finite,
                        "; the weights were not updated; lower optimizer.lr or resume from an earlier checkpoint"));
  }
  if (!std::isfinite(result.grad_norm)) {
    const std::string& name = last_norm_.first_non_finite;
    throw Error(ExitCode::kNonFinite, "train",
                str_cat("step ", step, ": the gradient of ", name.empty() ? "all tensors together" : name,
                        " is not finite (loss ", result.loss,
                        "); the weights were not updated; lower optimizer.lr or resume from an earlier checkpoint"));
  }
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
  optimizer_->step(ctx_);
}

void Engine::evaluate(const DeviceBatch& batch, LossStats& stats) {
  Ctx ctx = ctx_;
  ctx.tape = nullptr;
  stage_->loss(ctx, stage_->blocks(ctx, stage_->embed(ctx, batch.view()), batch.view()), batch.view(), stats);
}

std::vector<double> Engine::residual_rms(const DeviceBatch& batch) const {
  Ctx ctx = ctx_;
  ctx.tape = nullptr;
  std::vector<double> rms;
  Var h = stage_->embed(ctx, batch.view());
  for (int64_t i = 0;; ++i) {
    rms.push_back(std::sqrt(optim::sum_squares(ctx, h.value) / static_cast<double>(h.value.size())));
    if (i == stage_->num_blocks()) return rms;
    h = stage_->block(i).forward(ctx, h, batch.view(), stage_->rope_tables());
  }
}

}  // namespace ashlar::training
