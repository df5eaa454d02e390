#include "launch/trace/step_tracer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/printable.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "launch/trace/clock_offset.h"
#include "launch/trace/trace_file.h"
#include "parallel/comm/host.h"

namespace ashlar::trace {

namespace {

constexpr int kBarriers = 6;  // each end of a step; the tightest bounds of all of them count

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

StepTracer::StepTracer(TracedRun run) : run_(std::move(run)), recorder_(run_.ranks.engine()) {
  step_ = {.mesh = run_.mesh, .schedule = run_.schedule, .asynchronous = run_.asynchronous};
}

bool StepTracer::traces(int64_t step) const {
  return std::ranges::find(run_.steps, step) != run_.steps.end() || (run_.every > 0 && step % run_.every == 0);
}

std::vector<Interval> StepTracer::measure_clock() {
  std::vector<Interval> barriers(kBarriers);
  for (Interval& barrier : barriers) {
    barrier.begin = now_ns();
    comm::barrier(run_.ranks);
    barrier.end = now_ns();
  }
  return barriers;
}

bool StepTracer::begin(int64_t step) {
  if (job_.started() && job_.ended()) finish();
  if (!traces(step)) return false;
  clock_at_begin_ = measure_clock();
  step_.step = step;
  step_.unix_time = seconds_since_1970();
  recorder_.start();
  begin_ns_ = now_ns();
  return true;
}

void StepTracer::ended(Part part, int64_t begin_ns, double data_wait_ms) {
  const Interval time{begin_ns, now_ns()};
  if (part == Part::kForwardBackward && !recorder_.recorded().actions.empty())
    recorder_.add(Part::kGradientSums, {recorder_.recorded().actions.back().time.end, time.end});
  if (data_wait_ms > 0) {
    const auto wait = std::min(static_cast<int64_t>(data_wait_ms * 1e6), time.length());
    recorder_.add(Part::kDataWait, {time.begin, time.begin + wait});
  }
  recorder_.add(part, time);
}

void StepTracer::end() {
  if (!recording()) return;
  recorder_.stop();
  std::vector<Interval> own = std::exchange(clock_at_begin_, {});
  const std::vector<Interval> at_end = measure_clock();
  own.insert(own.end(), at_end.begin(), at_end.end());
  std::vector<Interval> first = own;
  comm::broadcast_bytes(run_.ranks, std::as_writable_bytes(std::span(first)), 0);
  const int64_t origin = comm::broadcast_value(run_.ranks, begin_ns_, 0);

  const auto point = [&](size_t from, int64_t at) {
    const auto of = [&](const std::vector<Interval>& all) { return std::span(all).subspan(from, kBarriers); };
    return ClockLine::Point{.at = at, .offset = offset_between(of(own), of(first), run_.same_machine)};
  };
  const ClockLine::Point begin = point(0, begin_ns_);
  const ClockLine clock(begin, point(kBarriers, at_end.front().begin));
  RankTrace rank = recorder_.recorded();
  rank.host = run_.host;
  rank.clock_offset = begin.offset.offset;
  rank.clock_uncertainty = clock.uncertainty();
  const std::string text = rank_text(rank, [&](int64_t own_ns) { return clock.on_first_rank(own_ns) - origin; });
  std::vector<std::string> ranks = comm::gather_texts_at(run_.ranks, text, 0);
  if (run_.ranks.rank() == 0) write(std::move(ranks));
}

void StepTracer::write(std::vector<std::string> ranks) {
  finish();
  written_step_ = step_.step;
  job_.start([this, step = step_, ranks = std::move(ranks)](const checkpoint::BackgroundJob::Cancelled&) {
    run_.check_owned();
    io::create_directories(folder_of(run_.run_dir));
    io::write_file_atomically(file_of(run_.run_dir, step.step), file_text(step, ranks));
  });
}

void StepTracer::finish() {
  if (!job_.started()) return;
  try {
    job_.join();
    run_.log.info(str_cat("traced step ", written_step_, ": ashlar trace ", printable(run_.run_dir.string()),
                          " --step ", written_step_));
  } catch (const Error& error) {
    run_.log.warn(str_cat("step ", written_step_, " is not traced: ", error.what()));
  }
}

}  // namespace ashlar::trace
