#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace ashlar::checkpoint {

/// The validation loss of the weights of a checkpoint.
struct RankedStep {
  int64_t step = 0;
  double val_loss = 0;
  std::optional<double> val_bpb;  ///< bits per byte of text
};

/// The checkpoints of a run whose weights were validated, ordered by validation loss, the best (lowest) first. Stored
/// in `RUN_DIR/best.json`, which every change replaces atomically. A step is added before its checkpoint is saved, so
/// the list may name steps without a checkpoint; readers skip them. Used by rank 0 only.
class Ranking {
 public:
  static constexpr std::string_view kFile = "best.json";

  explicit Ranking(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  /// Reads the file of a run that continues at `step`. Drops later steps, which the run repeats. Damaged-data error if
  /// the file cannot be read: a new list would give up the best checkpoints.
  void load(int64_t step);
  /// Adds a step, or replaces its loss, and writes the file. Drops steps whose checkpoint was removed.
  void add(const RankedStep& step);
  /// The best first; of equal losses the earlier step.
  const std::vector<RankedStep>& ranked() const { return ranked_; }
  /// Those whose checkpoint is complete.
  std::vector<RankedStep> saved() const;

 private:
  std::filesystem::path run_dir_;
  std::vector<RankedStep> ranked_;
};

/// Returns the checkpoint with the lowest validation loss for a user's path `RUN_DIR@best` that does not exist itself;
/// any other path unchanged. Input error if the run has no such checkpoint.
std::filesystem::path resolve_best(const std::filesystem::path& path);

}  // namespace ashlar::checkpoint
