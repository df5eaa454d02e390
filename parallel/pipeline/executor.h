#pragma once

#include <functional>
#include <vector>

#include "core/autograd/ctx.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/runner.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// What a stage needs to run its list.
struct Execution {
  const ScheduleSpec& spec;
  const ActionList& actions;   ///< this stage's list
  comm::Communicator& stages;  ///< one rank a stage, in order
  Runner& runner;
  std::vector<BoundaryTensor> boundary;                 ///< what crosses from chunk to chunk
  std::function<void(const Action&)> before = nullptr;  ///< called before each action; may be empty
  std::function<void(const Action&)> after;  ///< called after each action, for progress and timing; may be empty
};

/// Runs the list: computing through the runner, transfers over `stages`. A transfer is posted where it stands and
/// waited for by the action that needs what it brings; what has been sent is kept until it has left.
/// Errors: those of computing and of the communicator; everything under way is then given up.
void execute(const Ctx& ctx, const Execution& execution);

}  // namespace ashlar::pipeline
