#include "launch/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/io/atomic_file.h"
#include "core/optim/schedule.h"
#include "data/batch_stream.h"
#include "data/prefetcher.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/make_backend.h"
#include "launch/training/report.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"

namespace ashlar::training {

namespace {

double now_sec() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

data::StreamOptions stream_options(const config::RunConfig& c) {
  return {.sequence_length = c.train.sequence_length,
          .micro_batch = c.train.micro_batch,
          .dp_index = 0,
          .dp_size = 1,
          .documents = {.mask = c.data.document_mask, .restart_positions = c.data.restart_positions},
          .vocab_size = c.model.vocab_size};
}

optim::Schedule schedule_of(const config::RunConfig& c) {
  return {.kind = c.schedule.kind,
          .peak = c.optimizer.lr,
          .steps = c.train.steps,
          .warmup_steps = c.schedule.warmup_steps,
          .decay_steps = c.schedule.decay_steps,
          .min_ratio = c.schedule.min_ratio};
}

}  // namespace

Trainer::Trainer(const config::Resolved& resolved, std::vector<data::WeightedDataset> datasets,
                 const SignalWatch& signals, MemoryLedger memory, Log& log)
    : config_(resolved.config),
      config_toml_(config::to_toml(resolved.config)),
      tokenizer_json_(datasets.front().dataset->tokenizer().to_json()),
      signals_(signals),
      memory_(std::move(memory)),
      log_(log),
      directory_(resolved.config.run.dir) {
  const auto& c = config_;
  for (const auto& d : resolved.derived) log_.info(str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")"));

  backend_ = kernels::make_cpu_backend({.threads = static_cast<int>(c.run.threads), .log = &log_});
  stream_ = backend_->make_stream();
  log_.info(backend_->description());
  engine_.emplace(*backend_, *stream_,
                  EngineOptions{.model = c.model,
                                .dtype = c.run.dtype,
                                .optimizer = optim::AdamWOptions{.beta1 = c.optimizer.beta1,
                                                                 .beta2 = c.optimizer.beta2,
                                                                 .eps = c.optimizer.eps,
                                                                 .weight_decay = c.optimizer.weight_decay,
                                                                 .decay_embeddings = c.optimizer.decay_embeddings},
                                .clip = c.optimizer.clip,
                                .recompute = c.train.recompute,
                                .seed = static_cast<uint64_t>(c.run.seed),
                                .sequence_length = c.train.sequence_length});
  std::istringstream table(parameter_table(engine_->store(), engine_->optimizer()->options()));
  for (std::string line; std::getline(table, line);) log_.info(line);

  for (const auto& path : checkpoint::remove_leftovers(directory_.path()))
    log_.info(str_cat("removed ", path.string(), ", left by a killed process"));
  if (!restore()) {
    if (c.run.init_from) {
      checkpoint::CheckpointReader reader(checkpoint::resolve(*c.run.init_from, log_));
      checkpoint::load_weights(engine_->ctx(), reader, engine_->store(), engine_->optimizer());
      metadata_ = reader.metadata();
      log_.info(str_cat("weights from ", reader.path().string(), ", a fresh optimizer"));
    } else {
      engine_->initialize();
      log_.info(str_cat("initial weights from seed ", c.run.seed));
    }
  }
  io::write_file_atomically(directory_.config(), config_toml_);
  metrics_.emplace(directory_.metrics(), step_);
  validated_step_ = metrics_->last_validation_step();

  const std::string first = datasets.front().dataset->directory();
  const int64_t validation_tokens = datasets.front().dataset->tokens(data::Part::kValidation);
  auto stream = std::make_unique<data::TrainStream>(std::move(datasets), stream_options(c),
                                                    static_cast<uint64_t>(c.run.seed), step_ * c.train.global_batch);
  memory_.add("data", stream->max_resident_bytes());
  reader_ = std::make_unique<data::Prefetcher>(std::move(stream));
  if (validation_tokens >= 2) {
    validation_ = std::make_unique<data::ValidationStream>(first, stream_options(c), c.train.eval_batches);
  } else {
    log_.info(str_cat(first, " has no validation part: no val_loss will be reported"));
  }
  micro_batches_.resize(c.train.global_batch / c.train.micro_batch);
  peak_flops_ = cpu::measure_peak(c.run.dtype, static_cast<int>(c.run.threads), cpu::detect_cpu().isa, 0.05);
  log_.info(absl::StrFormat("mfu is measured against %.0f GFLOP/s of %s, this machine's own rate on registers now",
                            peak_flops_ / 1e9, std::string(name_of(c.run.dtype))));
}

Trainer::~Trainer() = default;

bool Trainer::restore() {
  const auto found = checkpoint::newest_good(directory_.path(), log_);
  if (!found) return false;
  checkpoint::CheckpointReader reader(found->path);
  // The checkpoint's own configuration decides what may change, not the file beside it.
  const config::Resolved stored =
      config::resolve(config::parse_config(reader.config_toml(), (found->path / "manifest.json").string(), {}),
                      {.dataset_vocab_size = config_.model.vocab_size, .hardware_threads = config_.run.threads});
  for (const auto& change : config::check_resume(stored.config, config_)) {
    log_.info(str_cat("changed since the checkpoint: ", change.key, " was ", change.before, ", is ", change.after));
  }
  const checkpoint::TrainingState state =
      checkpoint::load_training(engine_->ctx(), reader, engine_->store(), *engine_->optimizer());
  metadata_ = reader.metadata();
  step_ = saved_step_ = state.step;
  tokens_ = state.tokens;
  log_.info(str_cat("continuing from ", found->path.string(), " at step ", step_));
  return true;
}

StepResult Trainer::step(MetricsRow& row) {
  const Ctx ctx = engine_->ctx();
  const double begin = now_sec();
  reader_->take_data_wait_ms();
  for (DeviceBatch& slot : micro_batches_) slot.upload(ctx, *reader_->next());
  row.data_wait_ms = reader_->take_data_wait_ms();
  StepResult result = engine_->forward_backward(micro_batches_, step_);
  engine_->check_finite(result, step_ + 1);
  row.lr = schedule_of(config_).lr(step_);
  engine_->update(result, step_, row.lr);
  ++step_;
  tokens_ += result.tokens;
  row.step_ms = (now_sec() - begin) * 1e3;
  return result;
}

void Trainer::report(const MetricsRow& row) {
  metrics_->append(to_json(row));
  const bool wanted = row.step % config_.log.every == 0 || row.step == config_.train.steps || row.step == 1;
  if (wanted) log_.info(to_line(row));
}

void Trainer::write_statistics() {
  const Ctx ctx = engine_->ctx();
  const auto& store = engine_->store();
  const optim::GradNorm& grads = engine_->gradient_norm();
  const auto& optimizer = *engine_->optimizer();
  const std::vector<double> weights = optim::piece_squares(ctx, store, optimizer.ranges(), optimizer.master());
  nlohmann::ordered_json row;
  row["step"] = step_;
  for (size_t i = 0; i < store.pieces().size(); ++i) {
    const nn::Piece& piece = *store.pieces()[i].piece;
    const double n = static_cast<double>(piece.size());
    row["stats"][piece.name] = {{"weight_rms", std::sqrt(weights[i] / n)},
                                {"grad_rms", std::sqrt(grads.squares[i] / n)}};
  }
  const std::vector<double> residual = engine_->residual_rms(micro_batches_.front());
  for (size_t i = 0; i < residual.size(); ++i)
    row["stats"][i == 0 ? "embed" : str_cat("blocks.", i - 1)] = {{"output_rms", residual[i]}};
  metrics_->append(row.dump());
}

void Trainer::validate() {
  if (!validation_ || validated_step_ == step_) return;
  const double begin = now_sec();
  validation_->rewind();
  LossStats stats;
  data::Batch batch;
  DeviceBatch slot;
  while (validation_->next(batch)) {
    slot.upload(engine_->ctx(), batch);
    engine_->evaluate(slot, stats);
  }
  const double loss = stats.loss / static_cast<double>(std::max<int64_t>(stats.valid, 1));
  const double seconds = now_sec() - begin;
  if (!std::isfinite(loss)) {
    throw Error(ExitCode::kNonFinite, "train",
                str_cat("step ", step_, ": the validation loss is ", loss,
                        "; nothing was saved; lower optimizer.lr or resume from an earlier checkpoint"));
  }
  metrics_->append_validation(step_, loss, stats.valid, seconds);
  log_.info(absl::StrFormat("step %d  val_loss %.4f  over %d tokens in %s", step_, loss, stats.valid,
                            human_seconds(seconds)));
  validated_step_ = step_;
}

void Trainer::check_state() {
  // A finite gradient may still push a weight or a moment out of range; that shows a step later, or never.
  const auto& optimizer = *engine_->optimizer();
  const std::pair<const char*, nn::SlabTensor> slabs[] = {{"the weights of ", optimizer.master()},
                                                          {"the first moments of ", optimizer.m()},
                                                          {"the second moments of ", optimizer.v()}};
  for (const auto& [what, slab] : slabs) {
    const std::vector<double> squares =
        optim::piece_squares(engine_->ctx(), engine_->store(), optimizer.ranges(), slab);
    const auto bad = optim::first_non_finite(squares);
    if (!bad) continue;
    throw Error(ExitCode::kNonFinite, "train",
                str_cat("step ", step_, ": ", what, engine_->store().pieces()[*bad].piece->name,
                        " are not finite after the update; nothing was saved; lower optimizer.lr or resume from an "
                        "earlier checkpoint"));
  }
}

void Trainer::save() {
  if (saved_step_ == step_) return;
  check_state();
  const checkpoint::Saved saved =
      checkpoint::save(engine_->ctx(), {.run_dir = directory_.path(),
                                        .store = engine_->store(),
                                        .optimizer = engine_->optimizer(),
                                        .state = {.step = step_,
                                                  .position_samples = step_ * config_.train.global_batch,
                                                  .tokens = tokens_,
                                                  .seed = static_cast<uint64_t>(config_.run.seed),
                                                  .philox_step = static_cast<uint64_t>(step_)},
                                        .config_toml = config_toml_,
                                        .tokenizer_json = tokenizer_json_,
                                        .metadata = metadata_,
                                        .keep = config_.checkpoint.keep});
  saved_step_ = step_;
  log_.info(str_cat("saved ", saved.path.string(), " (", human_bytes(saved.bytes), " in ",
                    absl::StrFormat("%.1f", saved.seconds), " s)"));
}

ExitCode Trainer::run() {
  const auto& c = config_;
  if (step_ >= c.train.steps) {
    log_.info(str_cat("nothing to train: the run has done ", step_, " of ", c.train.steps,
                      " steps; raise train.steps to go on"));
  }
  const model::FlopsPerToken flops = model::flops_per_token(c.model, c.train.sequence_length);
  std::optional<SignalWatch::Request> stop;
  while (step_ < c.train.steps && !(stop = signals_.pending())) {
    MetricsRow row;
    row.result = step(row);
    row.step = step_;
    row.total_steps = c.train.steps;
    row.tokens = tokens_;
    row.tokens_per_sec = static_cast<double>(row.result.tokens) / (row.step_ms / 1e3);
    row.mfu = flops.total_full() * row.tokens_per_sec / peak_flops_;
    row.mfu_causal = flops.total_causal() * row.tokens_per_sec / peak_flops_;
    row.peak_memory_bytes = peak_resident_bytes();
    recent_ms_.push_back(row.step_ms);
    if (recent_ms_.size() > 50) recent_ms_.erase(recent_ms_.begin());
    double mean_ms = 0;
    for (const double ms : recent_ms_) mean_ms += ms / static_cast<double>(recent_ms_.size());
    row.eta_sec = mean_ms / 1e3 * static_cast<double>(c.train.steps - step_);
    report(row);
    if (c.log.stats_every > 0 && step_ % c.log.stats_every == 0) write_statistics();
    if (c.train.eval_every > 0 && step_ % c.train.eval_every == 0) validate();
    if (c.checkpoint.every > 0 && step_ % c.checkpoint.every == 0) save();
  }
  if (stop) {
    save();
    log_.info(
        str_cat(stop->name, ": stopped after step ", step_, " of ", c.train.steps, "; the same command continues"));
    return stop->code;
  }
  validate();
  save();
  log_.info(
      str_cat("memory: ", memory_.report(*backend_), "; peak of the process ", human_bytes(peak_resident_bytes())));
  return ExitCode::kDone;
}

}  // namespace ashlar::training
