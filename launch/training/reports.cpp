#include "launch/training/reports.h"

#include <cmath>

#include "core/base/error.h"
#include "core/device/host_threads.h"
#include "launch/training/clock.h"
#include "launch/training/peak_flops.h"
#include "launch/training/rank_work_timer.h"
#include "launch/training/terminal_sink.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

Reports::Reports(Run& run, RunStart& start, int64_t cores)
    : run_(run),
      validation_(std::move(*start.validation)),
      tasks_(std::move(start.tasks)),
      tokens_(start.progress.tokens),
      flops_(model::flops_per_token(run.config.model, run.config.train.sequence_length)),
      remaining_({.steps = run.config.train.steps,
                  .eval_every = run.config.train.eval_every,
                  .save_every = run.config.checkpoint.every}),
      status_(run.status, run.config.train.steps) {
  if (run_.first_rank) {
    // The file is the first sink: it throws if the run has lost its directory, so that no other sink reports the step.
    sinks_.push_back(std::move(start.metrics));
    sinks_.push_back(std::move(start.log));
    sinks_.push_back(std::move(start.events));
    if (start.tensorboard) sinks_.push_back(std::move(start.tensorboard));
    sinks_.push_back(std::make_unique<TerminalSink>(run_.log, run_.config.log));
    if (run_.config.model.moe.experts > 0) experts_.emplace(run_.config.model);
  }
  if (start.starts_over) emit(&MetricSink::warning, WarningEvent(*start.starts_over));
  watch_slow_ranks(cores);
  validated_step_ = comm::max_of(run_.ranks, start.validated_step);
  tasks_step_ = comm::max_of(run_.ranks, start.tasks_step);
  for (const std::string& note : validation_.notes()) run_.log.info(note);
  if (run_.sample && validation_.empty())
    run_.log.info("log.sample has no effect: a text is generated at validations, and there is no validation part");
  const config::RunSection& c = run_.config.run;
  peak_flops_ = peak_flops(run_.bootstrap, run_.device->backend(), c.dtype, static_cast<int>(c.threads), 0.05);
  emit(&MetricSink::start, StartEvent{.config = run_.config,
                                      .ranks = run_.ranks.size(),
                                      .peak_flops = peak_flops_,
                                      .step = start.progress.step,
                                      .changes = std::move(start.changes),
                                      .plan = std::move(start.plan)});
}

void Reports::watch_slow_ranks(int64_t cores) {
  if (run_.ranks.size() == 1) return;
  if (!run_.device->stream().synchronous())
    return emit(&MetricSink::warning, WarningEvent(SlowRanksNotJudged{.by_devices = true}));
  auto* const threads = dynamic_cast<HostThreads*>(&run_.device->backend());
  // Ranks that share cores are slow in turns, so they are not judged.
  const bool crowded = run_.bootstrap.local_size() * (threads == nullptr ? 1 : threads->threads()) > cores;
  if (comm::max_of(run_.ranks, int64_t{crowded}) != 0)
    return emit(&MetricSink::warning, WarningEvent(SlowRanksNotJudged{}));
  if (!run_.first_rank) return;
  std::vector<int64_t> stages;
  for (int rank = 0; rank < run_.ranks.size(); ++rank)
    stages.push_back(mesh::coordinates_of(run_.mesh->shape(), rank)[Axis::kPipeline]);
  slow_ranks_.emplace(std::move(stages));
}

void Reports::step(const FinishedStep& step) {
  tokens_ += step.result.tokens;
  if (!run_.first_rank) return;
  remaining_.add_step(step.ms);
  StepEvent event{.step = step.queued.step,
                  .total_steps = run_.config.train.steps,
                  .result = step.result,
                  .lr = step.queued.lr,
                  .tokens = tokens_,
                  .step_ms = step.ms,
                  .tokens_per_sec = static_cast<double>(step.result.tokens) / (step.ms / 1e3),
                  .peak_memory_bytes = step.message.peak_memory_bytes,
                  .data_wait_ms = step.queued.data_wait_ms,
                  .eta_sec = remaining_.seconds(step.queued.step),
                  .slowest = step.message.slowest};
  event.mfu = flops_.total_full() * event.tokens_per_sec / peak_flops_;
  event.mfu_causal = flops_.total_causal() * event.tokens_per_sec / peak_flops_;
  if (run_.gpu) event.gpu = run_.gpu->read();
  if (const int64_t bytes = run_.memory.device_bytes(run_.device->backend()); bytes > 0) event.gpu_memory_bytes = bytes;
  emit(&MetricSink::step, event);
  status_.step({.step = event.step,
                .loss = event.result.loss,
                .tokens_per_sec = event.tokens_per_sec,
                .eta_sec = event.eta_sec});
  log_slow_ranks(step);
  if (!experts_) return;
  expert_counts_ = step.result.expert_counts;
  for (const WarningEvent& warning : experts_->see(step.queued.step, expert_counts_))
    emit(&MetricSink::warning, warning);
}

void Reports::log_slow_ranks(const FinishedStep& step) {
  if (step.threads_waiting) {
    const int threads = dynamic_cast<HostThreads&>(run_.device->backend()).threads();
    emit(&MetricSink::warning,
         WarningEvent(
             ThreadsWait{.rank = 0, .share = *step.threads_waiting, .steps = ThreadWaits::kSteps, .threads = threads}));
  }
  if (!slow_ranks_ || step.message.rank_ms.empty()) return;
  for (const SlowRanks::Finding& found : slow_ranks_->see(step.message.rank_ms)) {
    const std::string& host = run_.hosts[static_cast<size_t>(found.rank)];
    const WarningEvent over = RankSlowOver{
        .rank = found.rank, .host = host, .ms = found.ms, .usual_ms = found.usual_ms, .step = step.queued.step};
    const WarningEvent slow = RankSlow{.rank = found.rank,
                                       .host = host,
                                       .ms = found.ms,
                                       .usual_ms = found.usual_ms,
                                       .lone = found.lone,
                                       .step = step.queued.step,
                                       .steps = SlowRanks::kInARow * SlowRanks::kWindow};
    emit(&MetricSink::warning, found.over ? over : slow);
  }
}

void Reports::statistics(int64_t step) {
  run_.recorder().enter(watch::Phase::kStatistics);
  Engine& engine = *run_.engine;
  const zero::GlobalNorm& norms = engine.norms();
  const std::vector<double> grads = engine.gradient_squares();
  const std::vector<double> weights = engine.sums_of(engine.optimizer()->master());
  StatisticsEvent event{
      .step = step, .tensors = {}, .residual_rms = engine.residual_rms(), .experts = expert_loads_of_step()};
  for (size_t i = 0; i < norms.names().size(); ++i) {
    const double n = static_cast<double>(norms.num_elements()[i]);
    event.tensors.push_back(
        {.name = norms.names()[i], .weight_rms = std::sqrt(weights[i] / n), .grad_rms = std::sqrt(grads[i] / n)});
  }
  emit(&MetricSink::statistics, event);
}

std::vector<ExpertLoad> Reports::expert_loads_of_step() {
  const std::vector<std::pair<double, double>> biases = run_.engine->selection_bias_ranges();
  if (!experts_) return {};
  std::vector<ExpertLoad> loads = expert_loads(run_.config.model, expert_counts_);
  for (size_t i = 0; i < biases.size(); ++i) loads[i].bias_range = biases[i];
  return loads;
}

std::function<int64_t()> Reports::before_batch() {
  return [this, batch = int64_t{0}]() mutable {
    run_.recorder().enter(watch::Phase::kValidating, batch++);
    const auto request = run_.signals.pending();
    return request ? static_cast<int64_t>(request->code) : 0;
  };
}

void Reports::evaluate_tasks(int64_t step) {
  if (!lacks_tasks(step)) return;
  const double begin = now_sec();
  run_.signals.enter(watch::StopPoint::kValidation);
  TasksEvent event{.step = step, .scores = tasks_->run(*run_.engine, [next = before_batch()](const auto&, int64_t) {
                     return next();
                   })};
  run_.signals.enter(watch::StopPoint::kStep);
  event.seconds = now_sec() - begin;
  if (event.scores) tasks_step_ = step;
  emit(&MetricSink::tasks, event);
}

void Reports::validate(int64_t step) {
  if (!lacks_validation(step)) return;
  const double begin = now_sec();
  run_.signals.enter(watch::StopPoint::kValidation);
  int64_t batch = 0;
  const int64_t rounds = validation_.rounds(run_.engine->mesh());
  const std::function<int64_t()> next = before_batch();
  ValidationEvent event{.step = step, .result = validation_.run(*run_.engine, [&] {
                          status_.validating(step, batch++, rounds);
                          return next();
                        })};
  run_.signals.enter(watch::StopPoint::kStep);
  if (!event.result) return emit(&MetricSink::validation, event);
  event.seconds = now_sec() - begin;
  remaining_.add_validation(event.seconds);
  for (const SourceLoss& source : event.result->sources) {
    if (std::isfinite(source.loss)) continue;
    throw comm::AllRanksError(ExitCode::kNonFinite, "train",
                              str_cat("step ", step, ": the validation loss of ", source.path, " is ", source.loss,
                                      "; nothing was saved; lower optimizer.lr or resume from an earlier checkpoint"));
  }
  emit(&MetricSink::validation, event);
  validated_step_ = step;
  last_ = std::move(event.result);
  if (!run_.sample) return;
  const std::string text = run_.sample(*run_.engine);
  emit(&MetricSink::sample, SampleEvent{.step = step, .prompt = run_.config.log.sample.value_or(""), .text = text});
}

void Reports::save_begun(const SaveEvent& event) {
  remaining_.add_save(event.ms);
  emit(&MetricSink::save, event);
}

std::optional<checkpoint::RankedStep> Reports::score(int64_t step) const {
  if (!last_ || last_->sources.empty() || validated_step_ != step) return std::nullopt;
  return checkpoint::RankedStep{.step = step, .val_loss = last_->loss, .val_bpb = last_->bits_per_byte};
}

void Reports::error(int64_t step, const Error& error) noexcept {
  try {
    emit(&MetricSink::error, ErrorEvent{.step = step, .code = error.code(), .text = error.what()});
  } catch (const std::exception&) {
    // The run has lost its directory as well; the first error is the one to report.
  }
}

void Reports::end(int64_t step, std::optional<std::string> signal, std::vector<checkpoint::RankedStep> best) {
  EndEvent event{.step = step, .total_steps = run_.config.train.steps, .signal = std::move(signal)};
  if (last_ && !last_->sources.empty()) {
    event.val_loss = last_->loss;
    event.val_bpb = last_->bits_per_byte;
  }
  event.best = std::move(best);
  if (!event.signal) {
    event.memory = run_.memory.report(run_.device->backend());
    event.device_memory = run_.memory.device_report(run_.device->backend());
  }
  emit(&MetricSink::end, event);
}

}  // namespace ashlar::training
