#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Durations of the actions of one micro-batch, in any unit of time. Each list has one entry per model chunk, [stages *
/// virtual_stages]. A full backward takes the sum of its two parts. `latency` is the time of any transfer between two
/// stages; a transfer within a stage takes no time.
struct Costs {
  std::vector<double> forward, backward_input, backward_weight;
  double latency = 0;

  /// Equal costs for every chunk.
  static Costs uniform(const ScheduleSpec& spec, double forward, double backward_input, double backward_weight);
};

/// Start and end of an action. A transfer starts when both stages have reached it.
struct Span {
  double start = 0, end = 0;
};

struct StageRun {
  std::vector<Span> spans;  ///< one for each action of the stage's list
  double busy = 0;          ///< computing time
  double idle = 0;          ///< time spent waiting or in transfers: time of the step - busy
  // Peak numbers of pairs (micro-batch, chunk):
  int64_t live = 0;    ///< pairs whose forward has run and whose (input) backward has not; 0 in forward_only
  int64_t queued = 0;  ///< pairs whose input backward has run and whose weight backward has not
  int64_t held = 0;    ///< peak of live + queued at the same time
};

struct Simulation {
  double time = 0;             ///< time of the step
  double bubble_fraction = 0;  ///< sum of idle over the stages / (stages * time)
  std::vector<StageRun> stages;
};

/// Simulates the lists of all stages on one thread. Each stage runs one action at a time without overlap, and a
/// transfer blocks both stages until it is complete. This is the strictest case, so a schedule that completes in the
/// simulation also completes with any buffering and overlap. Verifies the following, or throws a Bug with stage, action
/// and reason:
/// - every transfer matches a transfer of the peer, tensor by tensor;
/// - sent tensors were computed before and go to the stage that needs them; computations have their inputs;
/// - every chunk runs the forward of each micro-batch once and, unless forward_only, its backward once after that,
///   either as a full backward or as an input and then a weight backward, in ascending order of micro-batches;
/// - the step ends: otherwise the text of the Bug lists the action at which each stage waits.
Simulation simulate(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Costs& costs);

}  // namespace ashlar::pipeline
