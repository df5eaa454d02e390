#include "launch/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/device/device_facts.h"
#include "core/device/host_limits.h"
#include "core/device/host_threads.h"
#include "core/io/atomic_file.h"
#include "data/read/batch_stream.h"
#include "data/read/prefetcher.h"
#include "kernels/make_backend.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/training/layout.h"
#include "launch/training/lr_schedule.h"
#include "launch/training/own_devices.h"
#include "launch/training/parameter_table.h"
#include "launch/training/peak_flops.h"
#include "launch/training/run_events.h"
#include "launch/training/run_identity.h"
#include "launch/training/traffic.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/comm/device_comm.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

double now_sec() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

data::StreamOptions stream_options(const config::RunConfig& c, const mesh::Mesh& mesh) {
  return {.sequence_length = c.train.sequence_length,
          .micro_batch = c.train.micro_batch,
          .dp_index = mesh.at().data,
          .dp_size = mesh.shape().data,
          .documents = {.mask = c.data.document_mask, .restart_positions = c.data.restart_positions},
          .vocab_size = c.model.vocab_size,
          .rows_multiple = mesh.shape().tensor};
}

}  // namespace

Trainer::Trainer(TrainerArgs args)
    : config_(args.resolved.config),
      config_toml_(config::to_toml(config_)),
      tokenizer_json_(args.datasets.front().dataset->tokenizer().to_json()),
      data_(data_records(args.datasets)),
      bootstrap_(args.bootstrap),
      ranks_(args.bootstrap.control()),
      first_rank_(ranks_.rank() == 0),
      signals_(args.signals),
      memory_(std::move(args.memory)),
      log_(args.log),
      flops_(model::flops_per_token(config_.model, config_.train.sequence_length)),
      directory_(config_.run.dir),
      watch_(args.watch),
      checkpoints_({.ranks = ranks_,
                    .log = log_,
                    .run_dir = config_.run.dir,
                    .keep = config_.checkpoint.keep,
                    .check_owned = [this] { directory_.check_owned(); }}) {
  const mesh::Coordinates at = mesh::coordinates_of(shape_of(config_.mesh), ranks_.rank());
  watch_.flight_recorder().place(at.pipeline, at.data, at.tensor);
  for (const auto& d : args.resolved.derived) log_.info(str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")"));
  open_run_directory();
  set_up(args);
}

Trainer::~Trainer() = default;

void Trainer::set_up(TrainerArgs& args) {
  const auto& c = config_;
  comm::try_on_all_ranks(ranks_, [&] {
    backend_ = args.make_backend ? args.make_backend()
                                 : kernels::make_backend({.device = std::string(name_of(c.run.device)),
                                                          .local_rank = args.bootstrap.local_rank(),
                                                          .threads = static_cast<int>(c.run.threads),
                                                          .log = &log_,
                                                          .attention = c.train.attention});
  });
  check_own_devices(ranks_, *backend_);
  memory_.add_of_device("context", *backend_);
  if (auto* const gpu = dynamic_cast<DeviceFacts*>(backend_.get()); gpu != nullptr && first_rank_) {
    try {
      gpu_.emplace(gpu->id());
    } catch (const Error& error) {
      log_.info(str_cat("no clock, power and throttling beside the rates: ", error.what()));
    }
  }
  stream_ = backend_->make_stream();
  pending_ = PendingSteps(*stream_);
  log_.info(backend_->description());
  comm::DeviceComm device = comm::make_device_comm({.host = bootstrap_.world(),
                                                    .control = ranks_,
                                                    .backend = *backend_,
                                                    .log = log_,
                                                    .cuda = name_of(c.run.device) == "cuda",
                                                    .deterministic = c.run.deterministic});
  device_comm_ = std::move(device.all);
  memory_.add_of_device("nccl", *backend_);
  watch_.watchdog().before_end(std::move(device.abort));
  mesh_.emplace(device_comm_ ? *device_comm_ : bootstrap_.world(), shape_of(c.mesh),
                model::kv_sharing_ranks(c.model, c.mesh.tensor));
  engine_.emplace(*backend_, *stream_, *mesh_, watched_options());
  const int64_t micro_batches = num_micro_batches(c);
  const pipeline::ScheduleSpec schedule{.kind = engine_->options().schedule,
                                        .stages = c.mesh.pipeline,
                                        .micro_batches = micro_batches,
                                        .virtual_stages = c.mesh.virtual_stages};
  const pipeline::Partition cut = partition_of(
      c.model,
      {.sequence_length = c.train.sequence_length, .stages = c.mesh.pipeline, .virtual_stages = c.mesh.virtual_stages});
  hosts_ = comm::gather_texts_at(ranks_, comm::Bootstrap::host_name(), 0);
  if (first_rank_) {
    for (const std::string& line : layout_picture({.model = c.model,
                                   .mesh = mesh_->shape(),
                                   .cut = cut,
                                   .schedule = schedule,
                                   .sequence_parallel = c.mesh.sequence_parallel,
                                   .hosts = hosts_}))
      log_.info(line);
  }
  std::istringstream table(parameter_table(c.model, engine_->optimizer()->options()));
  for (std::string line; std::getline(table, line);) log_.info(line);

  auto* const tunable = dynamic_cast<Tunable*>(backend_.get());
  if (Tuner* const tuner = tunable != nullptr ? tunable->tuner() : nullptr)
    tuning_.emplace(*tuner, ranks_, log_, directory_.choices(), [this] { watch_.flight_recorder().tick(); });

  watch_.flight_recorder().enter(watch::Phase::kLoading);
  const bool restored = !args.restart && restore();
  if (tuning_ && !args.restart) tuning_->reuse(restored ? saved_choices() : "");
  if (!restored) {
    if (c.run.init_from) {
      const std::filesystem::path from = checkpoint::load_resolved(
          {.path = *c.run.init_from, .log = log_, .ranks = ranks_, .load = [&](checkpoint::CheckpointReader& reader) {
             checkpoint::load_weights(engine_->ctx(), load_args(reader));
             metadata_ = reader.metadata();
             metadata_.erase(Tuning::kMetadataKey);  // another run's
           }});
      engine_->start_param_sync();
      log_.info(str_cat("weights from ", from.string(), ", a fresh optimizer"));
    } else {
      engine_->initialize();
      log_.info(str_cat("initial weights from seed ", c.run.seed));
    }
  }

  if (c.checkpoint.every > 0 && c.checkpoint.every <= c.train.steps) {
    comm::try_on_all_ranks(ranks_, [&] {
      memory_.add("snapshot", checkpoints_.reserve(engine_->ctx(), engine_->store(), *engine_->optimizer()));
    });
  }

  watch_.flight_recorder().enter(watch::Phase::kStarting);
  comm::try_on_all_ranks(ranks_, [&] {
    std::vector<data::WeightedDataset> again;  // for readers of their own
    for (const auto& d : args.datasets) again.push_back({d.dataset->reopened(), d.weight});
    validation_.emplace(std::move(again), stream_options(c, *mesh_), c.train.eval_sequences);
    auto stream = std::make_unique<data::TrainStream>(std::move(args.datasets), stream_options(c, *mesh_),
                                                      static_cast<uint64_t>(c.run.seed), step_ * c.train.global_batch);
    memory_.add("data", stream->max_resident_bytes());
    reader_ = std::make_unique<data::Prefetcher>(std::move(stream));
  });
  comm::try_on_all_ranks(ranks_, [&] {
    if (!first_rank_) return;
    const std::filesystem::path aside = args.restart ? directory_.set_aside() : "";
    if (!aside.empty()) log_.info(str_cat("the earlier run is now ", aside.string()));
    directory_.check_owned();
    io::write_file_atomically(directory_.config(), config_toml_);
    metrics_.emplace(directory_.metrics(), step_, log_, [this] { directory_.check_owned(); });
    if (!restored && metrics_->rows_set_aside() > 0)
      log_.info(to_line(StartsOver{.run_dir = directory_.path(), .rows = metrics_->rows_set_aside()}));
    validated_step_ = metrics_->last_validation_step();
  });
  batches_.emplace(*engine_, *reader_, static_cast<size_t>(micro_batches));
  watch_own_work(args.bootstrap.local_size(), args.cores > 0 ? args.cores : usable_cores());
  validated_step_ = comm::max_of(ranks_, validated_step_);
  for (const std::string& remark : validation_->remarks()) log_.info(remark);
  peak_flops_ = peak_flops(args.bootstrap, *backend_, c.run.dtype, static_cast<int>(c.run.threads), 0.05);
  log_.info(absl::StrFormat("mfu is measured against %.0f GFLOP/s of %s, %s own rate %s now", peak_flops_ / 1e9,
                            std::string(name_of(c.run.dtype)), ranks_.size() == 1 ? "this machine's" : "the ranks'",
                            c.run.device == config::Device::kCpu ? "on registers" : "of matrix products"));
}

void Trainer::watch_own_work(int64_t local_ranks, int64_t cores) {
  const bool alone = ranks_.size() == 1;
  if (!stream_->synchronous()) {
    if (!alone && first_rank_) log_.info(to_line(SlowRanksNotJudged{.by_devices = true}));
    return;
  }
  auto* const threads = dynamic_cast<HostThreads*>(backend_.get());
  own_work_.emplace(*ranks_.engine(), threads);
  // Ranks that take turns on cores are slow in turns, as the system has it.
  const bool crowded = local_ranks * (threads == nullptr ? 1 : threads->threads()) > cores;
  if (alone) return;
  if (comm::max_of(ranks_, int64_t{crowded}) != 0) return log_.info(to_line(SlowRanksNotJudged{}));
  if (!first_rank_) return;
  std::vector<int64_t> stages;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    stages.push_back(mesh::coordinates_of(mesh_->shape(), rank).pipeline);
  slow_ranks_.emplace(std::move(stages));
}

EngineOptions Trainer::watched_options() {
  EngineOptions options = engine_options(config_);
  options.after_node = [this] { watch_.flight_recorder().tick(); };
  options.before_action = [this](const pipeline::Action& action) {
    watch::FlightRecorder& recorder = watch_.flight_recorder();
    const watch::Phase phase = recorder.page().phase;
    if (phase == watch::Phase::kValidating || phase == watch::Phase::kStatistics) return recorder.tick();
    using enum pipeline::ActionKind;
    recorder.enter(action.kind == kForward          ? watch::Phase::kForward
                   : action.kind == kBackwardWeight ? watch::Phase::kBackwardWeight
                   : action.kind == kTransfer       ? watch::Phase::kTransfer
                                                    : watch::Phase::kBackward,
                   action.kind == kTransfer ? -1 : action.micro_batch);
  };
  return options;
}

void Trainer::open_run_directory() {
  comm::try_on_all_ranks(ranks_, [&] {
    const std::string note = first_rank_ ? directory_.lock([&](const std::string& line) { log_.warn(line); }) : "";
    if (!note.empty()) log_.warn(note);
  });
  comm::try_on_all_ranks(ranks_, [&] { directory_.check_visible(); });
}

checkpoint::LoadArgs Trainer::load_args(checkpoint::CheckpointReader& reader) {
  return {.ranks = ranks_, .reader = reader, .store = engine_->store(), .optimizer = engine_->optimizer()};
}

bool Trainer::restore() {
  for (const auto& path : checkpoint::remove_leftovers(directory_.path(), log_, ranks_))
    log_.info(str_cat("removed ", path.string(), ", left by a killed process"));
  checkpoint::TrainingState state;
  const auto found = checkpoint::load_newest_good(
      {.path = directory_.path(), .log = log_, .ranks = ranks_, .load = [&](checkpoint::CheckpointReader& reader) {
         // The checkpoint's own configuration decides what may change, not the file beside it.
         comm::try_on_all_ranks(ranks_, [&] {
           const Continuation said = check_continuation(reader.path(), reader.manifest(), {config_, data_});
           if (first_rank_) said.say(log_);
         });
         state = checkpoint::load_training(engine_->ctx(), load_args(reader));
         metadata_ = reader.metadata();
       }});
  comm::try_on_all_ranks(ranks_, [&] {
    if (first_rank_) compare_with_committed(found ? std::optional(found->step) : std::nullopt);
  });
  if (!found) return false;
  engine_->start_param_sync();
  step_ = state.step;
  checkpoints_.loaded(*found);
  tokens_ = state.tokens;
  log_.info(str_cat("continuing from ", found->path.string(), " at step ", step_));
  return true;
}

void Trainer::compare_with_committed(std::optional<int64_t> found) const {
  if (!found) return directory_.check_none_lost();
  const auto before = directory_.committed();
  const auto there = [&](int64_t step) {
    std::error_code error;
    return std::filesystem::exists(checkpoint::checkpoints_dir(directory_.path()) / checkpoint::directory_name(step),
                                   error);
  };
  // One that is there and damaged has been named already.
  if (before && before->step > *found && !there(before->step))
    log_.warn(
        to_line(NewestCheckpointMissed{.run_dir = directory_.path(), .committed_step = before->step, .step = *found}));
  if (!before || before->step != *found) directory_.record_committed(*found);
}

std::string Trainer::saved_choices() const {
  const auto found = metadata_.find(Tuning::kMetadataKey);
  return found != metadata_.end() ? found->second : "";
}

void Trainer::rehearse() {
  watch_.flight_recorder().enter(watch::Phase::kStarting);
  do {
    engine_->backward(batches_->current(), step_, heard_.next);  // gradients that the step itself replaces
    stream_->synchronize();
  } while (tuning_->complete());  // what is chosen has workspaces of its own
  if (!tuning_->text().empty()) metadata_[Tuning::kMetadataKey] = tuning_->text();
}

void Trainer::queue_step() {
  double begin = now_sec();
  watch::FlightRecorder& recorder = watch_.flight_recorder();
  recorder.step(step_ + 1);
  if (heard_.unread != 0) {
    read_pending();                                                // the run ends here
    comm::try_on_all_ranks(ranks_, [&] { batches_->advance(); });  // what one reader met is an error of all
  } else {
    batches_->advance();
  }
  if (tuning_ && !tuning_->completed()) {
    rehearse();
    begin = now_sec();
  }
  const QueuedStep step{.step = step_ + 1,
                        .lr = schedule_of(config_).lr(step_),
                        .counts = heard_.next,
                        .begin_sec = begin,
                        .data_wait_ms = heard_.next_data_wait_ms};
  if (own_work_) own_work_->start();
  engine_->backward(batches_->current(), step_, step.counts);
  if (own_work_) own_work_->stop();
  recorder.enter(watch::Phase::kReadingData);
  if (step_ + 1 < config_.train.steps) batches_->prefetch();
  recorder.enter(watch::Phase::kOptimizer);
  if (own_work_) own_work_->start();
  engine_->reduce_norm();
  engine_->update(step_, step.lr);
  if (own_work_) {
    own_work_->stop();
    own_work_->end_step();
  }
  pending_.add(step);
  ++step_;
}

void Trainer::end_step() {
  if (pending_.due()) return read_report();
  heard_ = StepExchange(ranks_, message({})).wait();
}

void Trainer::read_report() {
  const StepReport report = engine_->take_report();
  heard_ = StepExchange(ranks_, message(report.losses)).wait();
  const QueuedStep step = pending_.oldest();
  const StepResult result = Engine::result_of(report, heard_.losses, step.counts);
  try {
    engine_->check_finite(result, step.step);
  } catch (const Error&) {
    pending_.forget();
    throw;
  }
  tokens_ += result.tokens;
  const double ms = pending_.done(now_sec());
  watch::FlightRecorder& recorder = watch_.flight_recorder();
  recorder.step_took(ms);
  recorder.enter(watch::Phase::kReporting);
  this->report(result, step, ms);
}

void Trainer::read_pending() {
  while (!pending_.empty()) read_report();
}

void Trainer::report(const StepResult& result, const QueuedStep& step, double step_ms) {
  MetricsRow row{.step = step.step,
                 .total_steps = config_.train.steps,
                 .result = result,
                 .lr = step.lr,
                 .tokens = tokens_,
                 .step_ms = step_ms,
                 .tokens_per_sec = static_cast<double>(result.tokens) / (step_ms / 1e3),
                 .peak_memory_bytes = heard_.peak_memory_bytes,
                 .data_wait_ms = step.data_wait_ms};
  row.slowest = heard_.slowest;
  if (gpu_) row.gpu = gpu_->read();
  if (memory_.device_bytes(*backend_) > 0) row.gpu_memory_bytes = memory_.device_bytes(*backend_);
  row.mfu = flops_.total_full() * row.tokens_per_sec / peak_flops_;
  row.mfu_causal = flops_.total_causal() * row.tokens_per_sec / peak_flops_;
  recent_ms_.push_back(row.step_ms);
  if (recent_ms_.size() > 50) recent_ms_.erase(recent_ms_.begin());
  double mean_ms = 0;
  for (const double ms : recent_ms_) mean_ms += ms / static_cast<double>(recent_ms_.size());
  row.eta_sec = mean_ms / 1e3 * static_cast<double>(row.total_steps - row.step);
  if (!first_rank_) return;
  metrics_->append(to_json(row));
  const bool wanted = row.step % config_.log.every == 0 || row.step == row.total_steps || row.step == 1;
  if (wanted) log_.step(to_line(row));
  say_who_is_slow(step.step);
}

void Trainer::say_who_is_slow(int64_t step) {
  if (!own_work_) return;
  if (const auto share = own_work_->waiting_threads()) {
    const int threads = dynamic_cast<HostThreads&>(*backend_).threads();
    log_.warn(to_line(ThreadsWait{.rank = 0, .share = *share, .steps = ThreadWaits::kSteps, .threads = threads}));
  }
  if (!slow_ranks_ || heard_.rank_ms.empty()) return;
  for (const SlowRanks::Finding& found : slow_ranks_->see(heard_.rank_ms)) {
    const std::string& host = hosts_[static_cast<size_t>(found.rank)];
    if (found.over) {
      log_.info(to_line(
          RankSlowOver{.rank = found.rank, .host = host, .ms = found.ms, .usual_ms = found.usual_ms, .step = step}));
    } else {
      log_.warn(to_line(RankSlow{.rank = found.rank,
                                 .host = host,
                                 .ms = found.ms,
                                 .usual_ms = found.usual_ms,
                                 .lone = found.lone,
                                 .step = step,
                                 .steps = SlowRanks::kInARow * SlowRanks::kWindow}));
    }
  }
}

void Trainer::write_statistics() {
  watch_.flight_recorder().enter(watch::Phase::kStatistics);
  const zero::GlobalNorm& norms = engine_->norms();
  const std::vector<double> grads = engine_->gradient_squares();
  const std::vector<double> weights = engine_->sums_of(engine_->optimizer()->master());
  const std::vector<double> residual = engine_->residual_rms(batches_->current());
  if (!first_rank_) return;
  nlohmann::ordered_json row;
  row["step"] = step_;
  for (size_t i = 0; i < norms.names().size(); ++i) {
    const double n = static_cast<double>(norms.num_elements()[i]);
    row["stats"][norms.names()[i]] = {{"weight_rms", std::sqrt(weights[i] / n)}, {"grad_rms", std::sqrt(grads[i] / n)}};
  }
  for (size_t i = 0; i < residual.size(); ++i)
    row["stats"][i == 0 ? "embed" : str_cat("blocks.", i - 1)] = {{"output_rms", residual[i]}};
  metrics_->append(row.dump());
}

void Trainer::validate() {
  if (validation_->empty() || validated_step_ == step_) return;
  const double begin = now_sec();
  signals_.enter(watch::StopPoint::kValidation);
  int64_t batch = 0;
  const std::optional<ValidationResult> seen = validation_->run(*engine_, [&] {
    watch_.flight_recorder().enter(watch::Phase::kValidating, batch++);
    const auto request = signals_.pending();
    return request ? static_cast<int64_t>(request->code) : 0;
  });
  signals_.enter(watch::StopPoint::kStep);
  if (!seen) {
    log_.info(str_cat("step ", step_, "  the validation was left before its end; its loss is not written"));
    return;
  }
  const double seconds = now_sec() - begin;
  for (const SourceLoss& source : seen->sources) {
    if (std::isfinite(source.loss)) continue;
    throw comm::AllRanksError(ExitCode::kNonFinite, "train",
                              str_cat("step ", step_, ": the validation loss of ", source.path, " is ", source.loss,
                                      "; nothing was saved; lower optimizer.lr or resume from an earlier checkpoint"));
  }
  if (metrics_ && !seen->sources.empty()) metrics_->append_validation(step_, *seen, seconds);
  for (const std::string& line : to_lines(*seen, step_, seconds)) log_.info(line);
  validated_step_ = step_;
}

checkpoint::SaveArgs Trainer::save_args() {
  return {.ranks = ranks_,
          .run_dir = directory_.path(),
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
          .data = data_,
          .check = [this] { directory_.check_owned(); },
          .committed = [this, step = step_] { directory_.record_committed(step); }};
}

void Trainer::save() {
  const double begin = now_sec();
  signals_.enter(watch::StopPoint::kSave);
  watch_.flight_recorder().enter(watch::Phase::kSaving);
  engine_->check_state(step_);
  engine_->update_after(checkpoints_.begin(engine_->ctx(), save_args()));
  signals_.enter(watch::StopPoint::kStep);
  if (metrics_) metrics_->append(str_cat("{\"step\":", step_, ",\"save_ms\":", (now_sec() - begin) * 1e3, "}"));
}

void Trainer::save_last() {
  signals_.enter(watch::StopPoint::kSave);
  watch_.flight_recorder().enter(watch::Phase::kSaving);
  const Ctx ctx = engine_->ctx();
  if (!checkpoints_.has(step_)) engine_->check_state(step_);
  checkpoints_.finish(ctx, save_args());
  signals_.enter(watch::StopPoint::kStep);
}

StepMessage Trainer::message(const LossStats& losses) {
  const auto request = signals_.pending();
  StepMessage mine{.losses = losses,
                   .stop = request ? static_cast<int64_t>(request->code) : 0,
                   .save = checkpoints_.state(),
                   .peak_memory_bytes = peak_memory_.bytes()};
  batches_->tell(mine);
  if (own_work_) own_work_->tell(mine, ranks_.rank(), ranks_.size());
  return mine;
}

std::optional<watch::SignalWatch::Request> Trainer::stop_heard() const {
  if (heard_.stop == 0) return std::nullopt;
  return watch::SignalWatch::request_of(static_cast<ExitCode>(heard_.stop));
}

std::optional<watch::SignalWatch::Request> Trainer::stop_request() {
  heard_ = StepExchange(ranks_, message({})).wait();
  return stop_heard();
}

ExitCode Trainer::run() {
  try {
    return train();
  } catch (const Error& error) {
    if (is_known_to_all(error)) checkpoints_.wait();  // what is being saved is of an earlier step and good
    throw;
  }
}

bool Trainer::is_known_to_all(const Error& error) const {
  return ranks_.size() == 1 || dynamic_cast<const comm::AllRanksError*>(&error) != nullptr;
}

void Trainer::poll_saves() {
  try {
    checkpoints_.poll(heard_.save);
  } catch (const Error& error) {
    if (is_known_to_all(error)) read_pending();  // a run that ends has told its steps
    throw;
  }
}

ExitCode Trainer::train() {
  const auto& c = config_;
  signals_.enter(watch::StopPoint::kStep);
  if (step_ >= c.train.steps) {
    log_.info(str_cat("nothing to train: the run has done ", step_, " of ", c.train.steps,
                      " steps; raise train.steps to go on"));
  }
  std::optional<watch::SignalWatch::Request> stop;
  const auto due = [&](int64_t every) { return every > 0 && step_ > 0 && step_ % every == 0; };
  if (due(c.train.eval_every)) validate();  // what a signal has cut short
  if (step_ < c.train.steps) {
    watch_.flight_recorder().enter(watch::Phase::kReadingData);
    batches_->prefetch();
    stop = stop_request();
  }
  const TrafficCount traffic(bootstrap_);
  const int64_t first_step = step_;
  while (step_ < c.train.steps && !stop) {
    queue_step();
    end_step();
    poll_saves();
    const bool writes = due(c.log.stats_every), validates = due(c.train.eval_every), saves = due(c.checkpoint.every);
    if (stop_heard() || writes || validates || saves || step_ == c.train.steps) read_pending();
    stop = stop_heard();
    if (writes) write_statistics();
    if (validates) validate();
    if (saves) save();
    if (!stop && (validates || saves)) stop = stop_request();  // those take their time
  }
  if (const std::string sent = traffic.report(step_ - first_step); !sent.empty()) log_.info(sent);
  if (stop && step_ < c.train.steps) {
    save_last();
    log_.info(
        str_cat(stop->name, ": stopped after step ", step_, " of ", c.train.steps, "; the same command continues"));
    signals_.finish(stop->code);
    return stop->code;
  }
  validate();
  if ((stop = stop_request()) && validated_step_ != step_ && !validation_->empty()) {
    save_last();
    log_.info(str_cat(stop->name, ": stopped after the last step; the same command validates and ends"));
    signals_.finish(stop->code);
    return stop->code;
  }
  save_last();
  signals_.finish(ExitCode::kDone);
  watch_.flight_recorder().enter(watch::Phase::kEnding);
  log_.info(str_cat("memory: peak of the process ", memory_.report(*backend_)));
  if (const std::string device = memory_.device_report(*backend_); !device.empty())
    log_.info(str_cat("memory of the device: ", device));
  return ExitCode::kDone;
}

}  // namespace ashlar::training
