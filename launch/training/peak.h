#pragma once

#include "core/base/dtype.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// What all ranks together reach on registers, in flops a second: measured by each for about `seconds` on its threads,
/// less where more threads than cores take turns on a machine. Called by all ranks.
double peak_flops(comm::Bootstrap& bootstrap, DType dtype, int threads, double seconds);

}  // namespace ashlar::training
