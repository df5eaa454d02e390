#include "launch/training/peak_flops.h"

#include <algorithm>

#include "core/device/device_facts.h"
#include "core/device/host_limits.h"
#include "parallel/comm/host.h"

namespace ashlar::training {

double peak_flops(comm::Bootstrap& bootstrap, Backend& backend, DType dtype, int threads, double seconds) {
  double share = 1;
  if (dynamic_cast<DeviceFacts*>(&backend) == nullptr) {
    // A short measurement does not show that ranks share cores. So if the ranks of this machine have more threads than
    // it has cores, the measured rate is multiplied by cores / threads.
    const auto cores = static_cast<double>(usable_cores());
    share = std::min(1.0, cores / static_cast<double>(bootstrap.local_size() * threads));
  }
  return comm::sum_of(bootstrap.control(), share * backend.measure_peak(dtype, seconds));
}

}  // namespace ashlar::training
