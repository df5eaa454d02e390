// The suites of kernels on what nvcc made of them: each launch runs the PTX of its kernel.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "kernels/cuda/emulated_backend.h"
#include "kernels/cuda_host/device_memory.h"
#include "tests/ptx/kernel_names.h"
#include "tests/ptx/thread.h"
#include "tests/support/every_backend.h"
#include "tests/support/test_memory.h"

#if defined(ASHLAR_PTX_DIR)

namespace ashlar::test {

namespace {

/// All kernels of one compilation, by their names in the source.
class PtxKernels {
 public:
  explicit PtxKernels(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".ptx") continue;
      std::ifstream file(entry.path());
      programs_.push_back(std::make_unique<ptx::Program>(entry.path().filename(),
                                                         std::string(std::istreambuf_iterator<char>(file), {})));
      for (const ptx::Function& function : programs_.back()->functions()) {
        if (!function.entry) continue;
        const auto [at, added] = kernels_.emplace(ptx::source_name(function.name), Kernel{*programs_.back(), function});
        ASHLAR_CHECK(added, "two kernels are called ", at->first, "; rename one");
      }
    }
    ASHLAR_CHECK(!kernels_.empty(), "no kernels in ", folder.string());
  }

  std::function<void()> find(const emulator::KernelCall& call) const {
    std::string name = names_.of(call.function);
    const std::string ours = "ashlar::emulated::", nvccs = "ashlar::cuda::";
    for (size_t at = 0; (at = name.find(ours, at)) != std::string::npos; at += nvccs.size()) {
      name.replace(at, ours.size(), nvccs);
    }
    const auto found = kernels_.find(name);
    ASHLAR_CHECK(found != kernels_.end(), "nvcc made no kernel '", name, "'");
    return [this, kernel = found->second, call] {
      ptx::Thread(kernel.program, may_touch_).run(kernel.function, call.arguments);
    };
  }

 private:
  struct Kernel {
    const ptx::Program& program;
    const ptx::Function& function;
  };

  std::vector<std::unique_ptr<ptx::Program>> programs_;
  std::map<std::string, Kernel> kernels_;
  ptx::KernelNames names_;
  ptx::MayTouch may_touch_ = [](const void* at, int64_t bytes) {
    const auto* memory = emulator::DeviceMemory::of(at);
    return memory != nullptr && memory->holds(at, bytes);
  };
};

}  // namespace

// ASHLAR_PTX_DIR has a folder for each target.
std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> all;
  for (const std::string target : {"compute_80", "compute_90a"}) {
    const std::filesystem::path folder = std::filesystem::path(ASHLAR_PTX_DIR) / target;
    if (!std::filesystem::exists(folder)) continue;
    const auto kernels = std::make_shared<PtxKernels>(folder);
    all.push_back({.name = target,
                   .bits = target,
                   .one_in = target == "compute_80" ? 11 : 29,  // most of the text is the same
                   .bf16_probabilities = true,
                   .any_head_dim = true,
                   .make = [kernels] {
                     return std::make_unique<emulated::EmulatedBackend>(emulated::DeviceOptions{
                         .schedule = "fifo",
                         .stream_order = "at_once",
                         .substitute = [kernels](const emulator::KernelCall& call) { return kernels->find(call); }});
                   }});
  }
  return all;
}

}  // namespace ashlar::test

#endif
