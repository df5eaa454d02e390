#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Durations of the actions of one micro-batch, in any unit of time, by model chunk [stages * virtual_stages]. A full
/// backward takes the sum of its two parts. `latency` is the time of any transfer between two stages; a transfer within
/// a stage takes no time.
struct Costs {
  std::vector<double> forward, backward_input, backward_weight;
  double latency = 0;

  /// Equal costs for every chunk.
  static Costs uniform(const ScheduleSpec& spec, double forward, double backward_input, double backward_weight);
};

/// Time of an action. A transfer starts when both sides have reached it.
struct Span {
  double start = 0, end = 0;
};

struct StageRun {
  std::vector<Span> spans;  ///< one for each action of the stage's list
  double busy = 0;          ///< computing time
  double idle = 0;          ///< waiting or in a transfer: the time of the step without `busy`
  // Peaks, in micro-batches of a chunk:
  int64_t live = 0;    ///< forward has run, (input) backward has not; 0 in forward_only
  int64_t queued = 0;  ///< input backward has run, weight backward has not
  int64_t held = 0;    ///< peak of both together
};

struct Simulation {
  double time = 0;             ///< time of the step
  double bubble_fraction = 0;  ///< idle share of stages * time
  std::vector<StageRun> stages;
};

/// Simulates the lists of all stages on one thread. Each stage runs one action at a time without overlap, and a
/// transfer blocks both stages until it is complete. So a schedule that terminates here terminates with any buffering
/// and overlap. Verifies the following, or throws a Bug with stage, action and reason:
/// - every transfer matches one of the peer, tensor by tensor;
/// - sent tensors were computed and go to the stage that needs them; computed ones have their inputs;
/// - every chunk runs each micro-batch forward once and, unless forward_only, backward once after it, either whole or
///   first input and then weight backward; both in ascending order;
/// - the step ends: otherwise the text lists the action at which every stage waits.
Simulation simulate(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Costs& costs);

}  // namespace ashlar::pipeline
