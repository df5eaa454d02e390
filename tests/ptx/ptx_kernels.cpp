#include "tests/ptx/ptx_kernels.h"

#include <fstream>
#include <iterator>

#include "core/base/error.h"

namespace ashlar::ptx {

PtxKernels::PtxKernels(const std::filesystem::path& folder, MayTouch may_touch) : may_touch_(std::move(may_touch)) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream file(entry.path());
    programs_.push_back(
        std::make_unique<Program>(entry.path().filename(), std::string(std::istreambuf_iterator<char>(file), {})));
    for (const Function& function : programs_.back()->functions()) {
      if (!function.entry) continue;
      const auto [at, added] = kernels_.emplace(source_name(function.name), Kernel{*programs_.back(), function});
      ASHLAR_CHECK(added, "two kernels are called ", at->first, "; rename one");
    }
  }
  ASHLAR_CHECK(!kernels_.empty(), "no kernels in ", folder.string());
}

std::function<void()> PtxKernels::find(const emulator::KernelCall& call) const {
  std::string name = names_.of(call.function);
  const std::string ours = "ashlar::emulated::", nvccs = "ashlar::cuda::";
  for (size_t at = 0; (at = name.find(ours, at)) != std::string::npos; at += nvccs.size()) {
    name.replace(at, ours.size(), nvccs);
  }
  const auto found = kernels_.find(name);
  ASHLAR_CHECK(found != kernels_.end(), "nvcc made no kernel '", name, "'");
  return
      [this, kernel = found->second, call] { Thread(kernel.program, may_touch_).run(kernel.function, call.arguments); };
}

}  // namespace ashlar::ptx
