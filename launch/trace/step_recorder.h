#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "launch/trace/step_trace.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::trace {

int64_t now_ns();  ///< steady clock

/// Records the slices of this rank while `recording`, in nanoseconds of its steady clock. A slice costs two reads of
/// the clock and 100 bytes of memory, which later steps use again. For the main thread.
class StepRecorder final : comm::OperationObserver {
 public:
  explicit StepRecorder(std::shared_ptr<comm::ProgressEngine> engine) : engine_(std::move(engine)) {}
  ~StepRecorder() override;

  void start();  ///< forgets what was recorded before
  void stop();   ///< cuts the operations that are not complete
  bool recording() const { return recording_; }

  void begin_action() { action_begin_ = now_ns(); }
  void end_action(const pipeline::Action& action);
  void add(Part part, Interval time);

  /// What was recorded: no host, the clocks as they are.
  const RankTrace& recorded() const { return trace_; }

 private:
  struct Open {
    const comm::Operation* operation;
    int64_t begin;
  };
  void begun(const comm::Operation& operation, Instant at) override;
  void ended(const comm::Operation& operation, Instant at) override;
  void called(const comm::Operation& operation, Instant begin, Instant end) override;
  OperationSlice slice_of(const comm::Operation& operation, Interval time);
  bool room();  ///< false, and counted, if there are too many slices

  const std::shared_ptr<comm::ProgressEngine> engine_;
  bool recording_ = false;
  int64_t begin_ = 0, action_begin_ = 0;
  RankTrace trace_;
  std::vector<Open> open_;  ///< operations that were issued and are not complete
};

}  // namespace ashlar::trace
