#include <memory>

#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {

// The emulated device with watched accesses: races, bounds, alignment and memory of the host are judged at each one. A
// race is found under any schedule in which both accesses happen, so one is enough.
std::vector<BackendUnderTest> backends_under_test() {
  return {{.name = "watched", .bits = "emulated", .one_in = 4, .bf16_probabilities = true, .make = [] {
             return std::make_unique<instrumented::EmulatedBackend>(
                 instrumented::DeviceOptions{.schedule = "pct", .stream_order = "random", .seed = 7});
           }}};
}

}  // namespace ashlar::test
