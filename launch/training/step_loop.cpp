#include "launch/training/step_loop.h"

#include "core/base/error.h"
#include "core/device/host_threads.h"
#include "launch/training/clock.h"
#include "launch/training/lr_schedule.h"
#include "launch/training/traffic.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

StepLoop::StepLoop(Run& run, Saving& saving, Reports& reports, std::unique_ptr<data::Prefetcher> reader, int64_t step)
    : run_(run),
      saving_(saving),
      reports_(reports),
      reader_(std::move(reader)),
      batches_(*run.engine, *reader_, static_cast<size_t>(num_micro_batches(run.config))),
      pending_(run.device->stream()),
      step_(step) {
  if (run.device->stream().synchronous())
    own_work_.emplace(*run.ranks.engine(), dynamic_cast<HostThreads*>(&run.device->backend()));
}

void StepLoop::rehearse() {
  run_.recorder().enter(watch::Phase::kStarting);
  do {
    run_.engine->backward(batches_.current(), step_, of_all_.next);  // the first step overwrites these gradients
    run_.device->stream().synchronize();
  } while (run_.tuning->complete());  // again with the chosen algorithms, which have their own workspaces
  if (!run_.tuning->text().empty()) saving_.keep(Tuning::kMetadataKey, run_.tuning->text());
}

void StepLoop::queue_step() {
  double begin = now_sec();
  watch::FlightRecorder& recorder = run_.recorder();
  recorder.step(step_ + 1);
  if (of_all_.unread != 0) {
    read_pending();  // reports all steps, since the next line ends the run
    comm::try_on_all_ranks(run_.ranks, [&] { batches_.advance(); });  // throws the read error on all ranks
  } else {
    batches_.advance();
  }
  if (run_.tuning && !run_.tuning->completed()) {
    rehearse();
    begin = now_sec();
  }
  if (run_.tracer && run_.tracer->begin(step_ + 1)) begin = now_sec();
  const QueuedStep step{.step = step_ + 1,
                        .lr = schedule_of(run_.config).lr(step_),
                        .counts = of_all_.next,
                        .begin_sec = begin,
                        .data_wait_ms = of_all_.next_data_wait_ms};
  forward_backward(step);
  recorder.enter(watch::Phase::kReadingData);
  if (step_ + 1 < run_.config.train.steps) read_batches();
  recorder.enter(watch::Phase::kOptimizer);
  update(step);
  pending_.add(step);
  ++step_;
}

void StepLoop::forward_backward(const QueuedStep& step) {
  const trace::PartScope part(run_.tracer, trace::Part::kForwardBackward);
  if (own_work_) own_work_->start();
  if (due(run_.config.log.stats_every, step.step)) run_.engine->measure_residual();
  run_.engine->backward(batches_.current(), step_, step.counts);
  if (own_work_) own_work_->stop();
}

void StepLoop::read_batches() {
  trace::PartScope part(run_.tracer, trace::Part::kData);
  batches_.prefetch();
  part.data_wait_ms = batches_.next_wait_ms();
}

void StepLoop::update(const QueuedStep& step) {
  const trace::PartScope part(run_.tracer, trace::Part::kOptimizer);
  if (own_work_) own_work_->start();
  run_.engine->reduce_norm();
  run_.engine->update(step_, step.lr);
  if (!own_work_) return;
  own_work_->stop();
  own_work_->end_step();
}

StepMessage StepLoop::exchange(const StepMessage& mine) {
  const trace::PartScope part(run_.tracer, trace::Part::kExchange);
  return StepExchange(run_.ranks, mine).wait();
}

void StepLoop::end_step() {
  if (pending_.due()) return read_report();
  of_all_ = exchange(message({}));
}

void StepLoop::read_report() {
  const StepReport report = run_.engine->take_report();
  of_all_ = exchange(message(report));
  const QueuedStep step = pending_.oldest();
  const StepResult result = run_.engine->result_of(report, of_all_, step.counts);
  try {
    run_.engine->check_finite(result, step.step);
  } catch (const Error&) {
    pending_.forget();
    throw;
  }
  const double ms = pending_.done(now_sec());
  run_.recorder().step_took(ms);
  run_.recorder().enter(watch::Phase::kReporting);
  const trace::PartScope part(run_.tracer, trace::Part::kReport);
  reports_.step({.queued = step,
                 .result = result,
                 .message = of_all_,
                 .ms = ms,
                 .threads_waiting = own_work_ ? own_work_->waiting_threads() : std::nullopt});
}

void StepLoop::read_pending() {
  while (!pending_.empty()) read_report();
}

StepMessage StepLoop::message(const StepReport& report) {
  const auto request = run_.signals.pending();
  StepMessage mine{.losses = report.losses,
                   .layers = report.layers,
                   .stop = request ? static_cast<int64_t>(request->code) : 0,
                   .save = saving_.state(),
                   .peak_memory_bytes = reports_.peak_memory_bytes()};
  batches_.write_to(mine);
  if (own_work_) own_work_->write_to(mine, run_.ranks.rank(), run_.ranks.size());
  return mine;
}

StepLoop::StopRequest StepLoop::requested_stop() const {
  if (of_all_.stop == 0) return std::nullopt;
  return watch::SignalWatch::request_of(static_cast<ExitCode>(of_all_.stop));
}

StepLoop::StopRequest StepLoop::stop_request() {
  of_all_ = StepExchange(run_.ranks, message({})).wait();
  return requested_stop();
}

void StepLoop::poll_saves() {
  try {
    saving_.poll(of_all_.save);
    report_saved();
  } catch (const Error& error) {
    if (run_.is_known_to_all(error)) read_pending();  // completed steps are reported first
    throw;
  }
}

void StepLoop::rank() {
  if (const auto score = reports_.score(step_)) saving_.rank(*score);
}

void StepLoop::save() {
  rank();
  reports_.saving(step_);
  const double ms = saving_.save({.step = step_, .tokens = reports_.tokens()});
  const auto score = reports_.score(step_);
  report_saved();
  reports_.save_begun({.step = step_, .ms = ms, .val_loss = score ? std::optional(score->val_loss) : std::nullopt});
}

void StepLoop::save_last() {
  rank();
  reports_.saving(step_);
  saving_.save_last({.step = step_, .tokens = reports_.tokens()});
  report_saved();
}

void StepLoop::report_saved() {
  for (const SavedCheckpoint& s : saving_.take_complete())
    reports_.saved({.step = s.step, .bytes = s.bytes, .seconds = s.seconds, .best = saving_.best()});
}

void StepLoop::run_steps(StopRequest& stop) {
  const config::RunConfig& c = run_.config;
  const TrafficCount traffic(run_.bootstrap);
  const int64_t first_step = step_;
  while (step_ < c.train.steps && !stop) {
    queue_step();
    end_step();
    poll_saves();
    const bool writes = due(c.log.stats_every), validates = due(c.train.eval_every),
               on_tasks = due(c.train.eval_tasks_every), saves = due(c.checkpoint.every);
    if (requested_stop() || writes || validates || on_tasks || saves || step_ == c.train.steps) read_pending();
    stop = requested_stop();
    const auto traced = [&](trace::Part part, auto work) {
      const trace::PartScope scope(run_.tracer, part);
      work();
    };
    if (writes) traced(trace::Part::kStatistics, [&] { reports_.statistics(step_); });
    if (validates) traced(trace::Part::kValidation, [&] { reports_.validate(step_); });
    if (on_tasks) traced(trace::Part::kTasks, [&] { reports_.evaluate_tasks(step_); });
    if (saves) traced(trace::Part::kSave, [&] { save(); });
    if (!stop && (validates || on_tasks || saves)) stop = stop_request();  // a signal may have come in the meantime
    if (run_.tracer) run_.tracer->end();
  }
  if (run_.tracer) run_.tracer->finish();
  if (const std::string sent = traffic.report(step_ - first_step); !sent.empty()) run_.log.info(sent);
}

ExitCode StepLoop::stop_at(const watch::SignalWatch::Request& request) {
  save_last();
  reports_.end(step_, std::string(request.name), saving_.best());
  run_.signals.finish(request.code);
  return request.code;
}

ExitCode StepLoop::run() {
  const config::TrainSection& c = run_.config.train;
  run_.signals.enter(watch::StopPoint::kStep);
  if (step_ >= c.steps) {
    run_.log.info(str_cat("nothing to train: the run has done ", step_, " of ", c.steps,
                          " steps; raise train.steps to continue, or give another run.dir for a new run"));
  }
  StopRequest stop;
  if (due(c.eval_every)) reports_.validate(step_);  // no effect if metrics.jsonl has this validation
  if (due(c.eval_tasks_every)) reports_.evaluate_tasks(step_);
  if (step_ > 0) rank();
  if (step_ < c.steps) {
    run_.recorder().enter(watch::Phase::kReadingData);
    batches_.prefetch();
    stop = stop_request();
  }
  run_steps(stop);
  if (stop && step_ < c.steps) return stop_at(*stop);
  reports_.validate(step_);
  reports_.evaluate_tasks(step_);
  if ((stop = stop_request()) && reports_.lacks_evaluation(step_)) return stop_at(*stop);
  save_last();
  run_.signals.finish(ExitCode::kDone);
  run_.recorder().enter(watch::Phase::kEnding);
  reports_.end(step_, std::nullopt, saving_.best());
  return ExitCode::kDone;
}

}  // namespace ashlar::training
