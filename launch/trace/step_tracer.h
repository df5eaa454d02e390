#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/trace/step_recorder.h"
#include "launch/trace/step_trace.h"
#include "parallel/checkpoint/background_job.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::trace {

/// What a StepTracer needs to know about a run. References must outlive it.
struct TracedRun {
  comm::ControlPlane& ranks;
  Log& log;
  std::filesystem::path run_dir;
  std::function<void()> check_owned;  ///< throws if the directory is no longer this run's; called beside the run
  std::vector<int64_t> steps;         ///< steps to trace
  int64_t every = 0;                  ///< traces the multiples of it too; 0: none
  mesh::MeshShape mesh;
  pipeline::ScheduleSpec schedule;
  bool asynchronous = false;  ///< StepTrace::asynchronous
  bool same_machine = false;  ///< this rank reads the clock of rank 0
  std::string host;
};

/// Traces steps of a run: records them on every rank, and rank 0 writes one file a step, in the background. A file that
/// cannot be written is a warning. A step that is traced again replaces its file.
class StepTracer {
 public:
  explicit StepTracer(TracedRun run);

  /// (all ranks) A step begins. If it is traced, measures the clocks, starts recording and returns true.
  bool begin(int64_t step);
  /// (all ranks) The step has ended, with what followed it (validation, save).
  void end();
  /// Waits until the last file is written, and reports it.
  void finish();

  bool recording() const { return recorder_.recording(); }
  void before_action() {
    if (recording()) recorder_.begin_action();
  }
  void after_action(const pipeline::Action& action) {
    if (recording()) recorder_.end_action(action);
  }
  /// A part of the step has ended. `data_wait_ms`: for kData, the wait for the reader.
  void ended(Part part, int64_t begin_ns, double data_wait_ms);

 private:
  bool traces(int64_t step) const;
  std::vector<Interval> measure_clock();
  void write(std::vector<std::string> ranks);

  const TracedRun run_;
  StepRecorder recorder_;
  StepTrace step_;            ///< without ranks
  int64_t written_step_ = 0;  ///< of the last file
  int64_t begin_ns_ = 0;
  std::vector<Interval> clock_at_begin_;
  checkpoint::BackgroundJob job_{"ashlar-trace"};  ///< declared last so that it is destroyed first
};

/// A part of a step, from construction to destruction. Without a tracer, or in a step that is not traced, does nothing.
class PartScope {
 public:
  PartScope(std::optional<StepTracer>& tracer, Part part)
      : tracer_(tracer && tracer->recording() ? &*tracer : nullptr), part_(part) {
    if (tracer_ != nullptr) begin_ns_ = now_ns();
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
  ~PartScope() {
    if (tracer_ != nullptr) tracer_->ended(part_, begin_ns_, data_wait_ms);
  }

  double data_wait_ms = 0;

 private:
  StepTracer* const tracer_;
  const Part part_;
  int64_t begin_ns_ = 0;
};

}  // namespace ashlar::trace
