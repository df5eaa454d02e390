#pragma once

#include <string>
#include <vector>

#include "tests/launch/run_fixture.h"

namespace ashlar::testing {

/// A folder with a tiny dataset (`chars`) and configuration (`gpu.toml`), and the program as it is on a machine with
/// GPUs: CUDA's runtime, cublasLt, NCCL and NVML are the stand-ins.
class StandInRun {
 public:
  StandInRun();

  /// Runs `ashlar WORDS`.
  ShellResult ashlar(const std::string& words) const;
  /// Runs `ashlar train gpu.toml WORDS`; `machine` is ASHLAR_STAND_IN_CUDA (tests/stand_ins/README.md), `variables` are
  /// more of the environment (`A=b C=d`).
  ShellResult train(const std::string& words, const std::string& machine = "", const std::string& variables = "") const;
  /// The same on several ranks.
  ShellResult train_on_ranks(int ranks, const std::string& words, const std::string& machine,
                             const std::string& variables = "") const;
  /// Runs `ashlar WORDS` with the emulated device in the place of a GPU, and no stand-in.
  ShellResult on_emulator(const std::string& words) const;
  /// Whether there is a stand-in for NCCL: it needs the vendor's header.
  static bool has_nccl();
  const RunFixture& run() const { return run_; }

 private:
  std::string environment(const std::string& machine) const;

  RunFixture run_;
};

}  // namespace ashlar::testing
