#pragma once

#include "core/backend/backend.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// Returns the sum of the peak rates of all ranks' backends (Backend::measure_peak), in flops per second. Each rank
/// measures for about `seconds` on its `threads`. If the ranks of a machine have more CPU threads than cores, the
/// result is lowered in proportion. Called by all ranks.
double peak_flops(comm::Bootstrap& bootstrap, Backend& backend, DType dtype, int threads, double seconds);

}  // namespace ashlar::training
