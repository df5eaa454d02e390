#pragma once

#include "core/backend/backend.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// What all ranks' backends together reach (Backend::measure_peak), in flops a second: each measures for about
/// `seconds` on its `threads`, less where more threads than cores take turns on a machine. Called by all ranks.
double peak_flops(comm::Bootstrap& bootstrap, Backend& backend, DType dtype, int threads, double seconds);

}  // namespace ashlar::training
