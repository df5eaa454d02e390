#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "kernels/cpu/cpu_options.h"

namespace ashlar::kernels {

/// The backend that runs on the host's own cores. Throws input_error for bad options.
std::unique_ptr<Backend> make_cpu_backend(const cpu::CpuOptions& options);

}  // namespace ashlar::kernels
