#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/strings.h"
#include "tests/gpu_emulator/emulator.h"

namespace ashlar::testing {

/// The schedules under which a correct kernel must give one result.
inline std::vector<emulator::Schedule> schedules() {
  using emulator::Policy;
  std::vector<emulator::Schedule> all = {{.policy = Policy::kFifo}, {.policy = Policy::kLifo}};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    all.push_back({.policy = Policy::kRandom, .seed = seed});
    all.push_back({.policy = Policy::kPct, .seed = seed});
  }
  return all;
}

/// How a test kernel is launched.
struct Shape {
  emulator::dim3 grid = 1;
  emulator::dim3 block = 32;
  int64_t shared_bytes = 0;
};

/// One machine, used again after faults, as the device uses it.
class Emulator : public ::testing::Test {
 protected:
  template <typename... Params, typename... Args>
  void run(const emulator::Schedule& schedule, const Shape& shape, void (*kernel)(Params...), Args&&... args) {
    machine_.run({.name = "test",
                  .grid = shape.grid,
                  .block = shape.block,
                  .shared_bytes = shape.shared_bytes,
                  .thread = emulator::bind(kernel, std::forward<Args>(args)...)},
                 schedule);
  }

  /// What the kernel is refused with, under the first schedule; the same kind of fault must come under all others.
  /// Empty when one of them lets it pass.
  template <typename... Params, typename... Args>
  std::string fault(const Shape& shape, void (*kernel)(Params...), Args&&... args) {
    std::string first;
    for (const emulator::Schedule& schedule : schedules()) {
      try {
        run(schedule, shape, kernel, args...);
        ADD_FAILURE() << "no fault under " << emulator::policy_name(schedule.policy) << " " << schedule.seed;
        return "";
      } catch (const emulator::Error& error) {
        if (first.empty()) first = error.what();
      }
    }
    return first;
  }

  emulator::Machine machine_;
};

}  // namespace ashlar::testing
