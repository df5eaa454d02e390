#pragma once

#include "core/backend/backend.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// The combined peak of all ranks' backends (Backend::measure_peak), in flops per second. Each rank measures for about
/// `seconds` on its `threads`. On a machine with more threads than cores the result is reduced in proportion. Called by
/// all ranks.
double peak_flops(comm::Bootstrap& bootstrap, Backend& backend, DType dtype, int threads, double seconds);

}  // namespace ashlar::training
