#include <memory>

#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/support/every_backend.h"
#include "tests/support/long_form.h"

namespace ashlar::test {

// The emulated device with five schedules of its threads, each with another order of its streams. Kernels are
// deterministic: all must give the same bits. The first runs each call when it is made, so that released memory is NaN
// at once. Each other schedule gets a part of the problems in the short form, and all of them in the long form.
std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> all;
  const auto add = [&](const char* name, const char* schedule, const char* order, uint64_t seed, int64_t one_in) {
    all.push_back({.name = name, .bits = "emulated", .one_in = one_in, .bf16_probabilities = true, .make = [=] {
                     return std::make_unique<emulated::EmulatedBackend>(
                         emulated::DeviceOptions{.schedule = schedule, .stream_order = order, .seed = seed});
                   }});
  };
#if defined(__SANITIZE_ADDRESS__)
  // There memory is what is tested, at six times the time. The suite `watched` checks each access of all problems.
  add("fifo", "fifo", "at_once", 1, 4);
  add("pct", "pct", "random", 5, 6);
#else
  add("fifo", "fifo", "at_once", 1, 1);
  add("lifo", "lifo", "random", 2, 3);
  add("random3", "random", "random", 3, 4);
  add("random4", "random", "random", 4, 5);
  add("pct", "pct", "random", 5, 2);
#endif
  return all;
}

}  // namespace ashlar::test
