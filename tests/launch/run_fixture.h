#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::testing {

/// Exit codes of the program, as its users see them.
inline constexpr int kInput = 2, kDamaged = 3, kNonFinite = 4, kResource = 6;

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A folder with a small byte dataset (`data`) and a tiny configuration (`tiny.toml`), and the program to run there.
class RunFixture {
 public:
  explicit RunFixture(std::string program = ASHLAR_BINARY);

  const std::filesystem::path& dir() const { return scratch_.path(); }
  /// Runs `ashlar WORDS` in the folder, with environment variables (`A=b C=d`).
  ShellResult ashlar(const std::string& words, const std::string& variables = "") const;
  /// Starts `ashlar WORDS`, output to `log`, with environment variables (`A=b C=d`); the caller kills or waits.
  pid_t start(const std::string& words, const std::string& log, const std::string& variables = "") const;
  static int wait_for(pid_t pid);  ///< exit code, or 128 + signal
  /// The process that is this rank of the job that Open MPI runs in the folder; throws when there is none.
  pid_t rank_process(int rank) const;
  std::optional<pid_t> find_rank_process(int rank) const;

  /// The exact part of a run's metrics: for each step its line's loss, grad_norm, lr and tokens as text, and val_loss
  /// rows.
  std::vector<std::string> exact_metrics(const std::string& run_dir) const;
  /// The numbers under `key` in a run's metrics, in their order.
  std::vector<double> metric(const std::string& run_dir, const std::string& key) const;
  /// Expects the losses and gradient norms of two runs to agree within `bound`, relative.
  void expect_same_metrics(const std::string& run_dir, const std::string& reference, double bound) const;
  std::string read(const std::string& file) const;
  void write(const std::string& file, const std::string& text) const;

 private:
  std::string program_;
  ScratchDir scratch_;
};

}  // namespace ashlar::testing
