#include "launch/training/peak.h"

#include <algorithm>
#include <thread>

#include "kernels/cpu/cpu_info.h"
#include "parallel/comm/host.h"

namespace ashlar::training {

double peak_flops(comm::Bootstrap& bootstrap, DType dtype, int threads, double seconds) {
  // A moment on a core does not tell that others take turns on it.
  const double cores = std::thread::hardware_concurrency();
  const double share = std::min(1.0, cores / static_cast<double>(bootstrap.local_size() * threads));
  return comm::sum_of(bootstrap.control(), share * cpu::measure_peak(dtype, threads, cpu::detect_cpu().isa, seconds));
}

}  // namespace ashlar::training
