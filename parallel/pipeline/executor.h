#pragma once

#include <functional>
#include <vector>

#include "core/autograd/ctx.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/runner.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {

/// Arguments of `execute`.
struct Execution {
  const ScheduleSpec& spec;
  const ActionList& actions;   ///< this stage's list
  comm::Communicator& stages;  ///< one rank per stage, in order
  Runner& runner;
  std::vector<BoundaryTensor> boundary;                 ///< tensors that pass from chunk to chunk
  std::function<void(const Action&)> before = nullptr;  ///< called before each action; may be empty
  std::function<void(const Action&)> after;  ///< called after each action, for progress and timing; may be empty
};

/// Runs the actions in the order of the list: computes with `runner` and transfers over `stages`. A transfer starts at
/// its place in the list, and the action that needs the received tensor waits for it. Tensors to be sent stay allocated
/// until they are sent. Throws errors of the computation and of the communicator; all pending communication is then
/// abandoned.
void execute(const Ctx& ctx, const Execution& execution);

}  // namespace ashlar::pipeline
