#pragma once

#include <string>

#include "launch/trace/step_trace.h"

namespace ashlar::trace {

/// Returns the step as a JSON object of the Trace Event Format, which Perfetto and chrome://tracing open. A process per
/// rank with the threads "compute" (parts of the step, actions, calls that communicate), "data" and "communication"
/// (operations from issue to completion; those that overlap are on further threads). The process of rank r has the id
/// 1000 (r + 1). Arrows lead from the forward of a micro-batch to its forward on the next chunk of the model, and back
/// for backwards. `title`: shown as the run's name.
std::string chrome_trace(const StepTrace& step, const std::string& title);

}  // namespace ashlar::trace
