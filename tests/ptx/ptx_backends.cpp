// The suites of kernels on what nvcc made of them: each launch runs the PTX of its kernel.
#include <filesystem>
#include <memory>

#include "kernels/cuda/emulated_backend.h"
#include "kernels/cuda_host/device_memory.h"
#include "tests/ptx/ptx_kernels.h"
#include "tests/support/every_backend.h"

#if defined(ASHLAR_PTX_DIR)

namespace ashlar::test {

namespace {

BackendUnderTest emulated_device(const std::string& name, const std::string& bits, int64_t one_in,
                                 const std::shared_ptr<ptx::PtxKernels>& kernels) {
  return {
      .name = name, .bits = bits, .one_in = one_in, .bf16_probabilities = true, .properties = false, .make = [kernels] {
        emulated::DeviceOptions options{.schedule = "fifo", .stream_order = "at_once"};
        if (kernels != nullptr) {
          options.substitute = [kernels](const emulator::KernelCall& call) { return kernels->find(call); };
        }
        return std::make_unique<emulated::EmulatedBackend>(options);
      }};
}

}  // namespace

// The PTX as it is shipped, and compiled without contraction, whose bits are those of the emulated kernels. Each takes
// other problems of the short form.
std::vector<BackendUnderTest> backends_under_test() {
  using std::filesystem::path;
  const auto from = [](const path& folder) {
    return std::make_shared<ptx::PtxKernels>(folder, [](const void* at, int64_t bytes) {
      const auto* memory = emulator::DeviceMemory::of(at);
      return memory != nullptr && memory->holds(at, bytes);
    });
  };
  std::vector<BackendUnderTest> all;
  all.push_back(emulated_device("compute_80", "compute_80", 41, from(path(ASHLAR_PTX_DIR) / "compute_80")));
  all.push_back(emulated_device("compute_90a", "compute_90a", 47, from(path(ASHLAR_PTX_DIR) / "compute_90a")));
  all.push_back(emulated_device("emulated", "without contraction", 29, nullptr));
  all.push_back(emulated_device("compute_80_uncontracted", "without contraction", 29,
                                from(path(ASHLAR_UNCONTRACTED_PTX_DIR) / "compute_80")));
  return all;
}

}  // namespace ashlar::test

#endif
