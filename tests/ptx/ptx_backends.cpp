// The suites of kernels on what nvcc made of them: each launch runs the PTX of its kernel.
#include <filesystem>
#include <functional>
#include <memory>

#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/gpu_emulator/device_memory.h"
#include "tests/ptx/long_targets.h"
#include "tests/ptx/ptx_kernels.h"
#include "tests/support/every_backend.h"
#include "tests/support/long_form.h"

#if defined(ASHLAR_PTX_DIR)

namespace ashlar::test {

namespace {

/// An emulated device that runs the kernels of what `kernels` returns, those of the program itself without. The
/// interpreter is too slow for all problems, of either form.
BackendUnderTest emulated_device(const std::string& name, const std::string& bits, int64_t one_in,
                                 const std::function<std::shared_ptr<ptx::PtxKernels>()>& kernels) {
  return {.name = name,
          .bits = bits,
          .one_in = one_in,
          .long_one_in = one_in,
          .bf16_probabilities = true,
          .properties = false,
          .make = [kernels] {
            emulated::DeviceOptions options{.schedule = "fifo", .stream_order = "at_once"};
            if (kernels) {
              options.substitute = [made = kernels()](const emulator::KernelCall& call) { return made->find(call); };
            }
            return std::make_unique<emulated::EmulatedBackend>(options);
          }};
}

/// Reads them when the first backend is made, behind `before`.
std::function<std::shared_ptr<ptx::PtxKernels>()> from(const std::filesystem::path& folder,
                                                       void (*before)() = nullptr) {
  return [folder, before, kernels = std::make_shared<std::shared_ptr<ptx::PtxKernels>>()] {
    if (before != nullptr) before();
    if (*kernels == nullptr) {
      *kernels = std::make_shared<ptx::PtxKernels>(folder, [](const void* at, int64_t bytes) {
        const auto* memory = emulator::DeviceMemory::of(at);
        return memory != nullptr && memory->holds(at, bytes);
      });
    }
    return *kernels;
  };
}

/// The PTX as it is shipped, and compiled without contraction, whose bits are those of the emulated kernels. Each takes
/// other problems beside the first of a test. In the long form that of a target which no binary is made for, too.
std::vector<BackendUnderTest> make_backends() {
  using std::filesystem::path;
  std::vector<BackendUnderTest> all;
  all.push_back(emulated_device("compute_80", "compute_80", 23, from(path(ASHLAR_PTX_DIR) / "compute_80")));
  if (std::filesystem::exists(ASHLAR_PTX_DIR "/compute_90a"))  // not in a build for sm_80 alone
    all.push_back(emulated_device("compute_90a", "compute_90a", 29, from(path(ASHLAR_PTX_DIR) / "compute_90a")));
  all.push_back(emulated_device("emulated", "without contraction", 17, nullptr));
  all.push_back(emulated_device("compute_80_uncontracted", "without contraction", 17,
                                from(path(ASHLAR_UNCONTRACTED_PTX_DIR) / "compute_80")));
  if (testing::long_form()) {
    all.push_back(emulated_device("compute_100", "compute_100", 31,
                                  from(path(ASHLAR_BUILD_DIR "/tests/ptx_long/compute_100"), ptx::make_long_targets)));
  }
  return all;
}

}  // namespace

// Made once: reading the PTX takes longer than most tests, and all of them share what was read.
std::vector<BackendUnderTest> backends_under_test() {
  static const std::vector<BackendUnderTest> all = make_backends();
  return all;
}

}  // namespace ashlar::test

#endif
