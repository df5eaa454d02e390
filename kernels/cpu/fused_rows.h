#pragma once

#include "core/backend/elementwise.h"
#include "core/backend/norm.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

// Functions that process only rows [begin, end) of a call, on the calling thread. With these functions, a kernel
// applies several operations to a few rows while these rows are in the cache.

using ResidualRows = void (*)(const ResidualForward& args, int64_t begin, int64_t end);
using NormRows = void (*)(const NormForward& args, int64_t begin, int64_t end);

ResidualRows residual_forward_rows(Isa isa);
NormRows norm_forward_rows(Isa isa);

}  // namespace ashlar::cpu
