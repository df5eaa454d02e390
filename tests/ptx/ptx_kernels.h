#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu_emulator/emulator.h"
#include "tests/ptx/kernel_names.h"
#include "tests/ptx/thread.h"

namespace ashlar::ptx {

/// All kernels that nvcc made in one compilation, in the place of this program's emulated ones of the same name.
class PtxKernels {
 public:
  /// Reads every *.ptx of a folder. `may_touch` says which memory outside of a block is the kernels'.
  PtxKernels(const std::filesystem::path& folder, MayTouch may_touch);

  /// What a thread of the call runs: its kernel's PTX. A Bug where nvcc made no such kernel.
  std::function<void()> find(const emulator::KernelCall& call) const;

 private:
  struct Kernel {
    const Program& program;
    const Function& function;
  };

  std::vector<std::unique_ptr<Program>> programs_;
  std::map<std::string, Kernel> kernels_;
  KernelNames names_;
  MayTouch may_touch_;
};

}  // namespace ashlar::ptx
