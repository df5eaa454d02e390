#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Durations of the actions of one micro-batch, in any unit of time; by chunk of the model, [stages * virtual_stages].
/// A whole backward takes the sum of its two parts. `latency` is the time of any transfer between two stages; a tensor
/// that stays on its stage moves at once.
struct Costs {
  std::vector<double> forward, backward_input, backward_weight;
  double latency = 0;

  /// The same for every chunk.
  static Costs uniform(const ScheduleSpec& spec, double forward, double backward_input, double backward_weight);
};

/// When an action runs. A transfer runs from the moment both sides have come to it.
struct Span {
  double start = 0, end = 0;
};

struct StageRun {
  std::vector<Span> spans;  ///< one for each action of the stage's list
  double busy = 0;          ///< computing
  double idle = 0;          ///< waiting or in a transfer: the time of the step without `busy`
  // Peaks, in micro-batches of a chunk:
  int64_t live = 0;    ///< forward has run, backward (of the inputs) has not; none in forward_only, which keeps nothing
  int64_t queued = 0;  ///< backward of the inputs has run, of the weights has not
  int64_t held = 0;    ///< of both together
};

struct Simulation {
  double time = 0;             ///< of the step
  double bubble_fraction = 0;  ///< idle share of stages * time
  std::vector<StageRun> stages;
};

/// Runs the lists of all stages against each other on one thread, each stage one action after the other, nothing
/// overlapped: a transfer holds both stages until it is done, so what ends here ends with any buffering and any
/// overlap. Proves on the way, or throws a Bug that names stage, action and reason:
/// - every transfer matches one of the peer that receives what it sends and sends what it receives, tensor by tensor;
/// - what is sent was computed and goes to the stage that needs it; what is computed has its input;
/// - every chunk runs each micro-batch forward once and, unless forward_only, backward once and after it, whole or
///   first inputs and then weights; backwards and weight backwards in ascending order;
/// - the step ends: otherwise the text lists the action that every stage waits at.
Simulation simulate(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Costs& costs);

}  // namespace ashlar::pipeline
