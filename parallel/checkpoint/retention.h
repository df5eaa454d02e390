#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::checkpoint {

/// Which checkpoints of a run stay.
struct KeepRule {
  int64_t newest = 0;  ///< number of newest valid ones; 0: all stay
  int64_t every = 0;   ///< also those at multiples of this step; 0: none
  int64_t best = 0;    ///< also this number of valid ones with the lowest validation loss
};

/// Keeps the `newest` newest valid checkpoints of a run and removes all older checkpoints, except those that the rest
/// of the rule keeps, on a thread of one rank. A checkpoint counts as valid only after all its bytes were verified. So
/// nothing is removed while fewer than `newest` checkpoints are known to be valid. A damaged checkpoint is reported; it
/// is removed when it is older than the last of the newest valid ones, unless it is at a multiple of `every`.
class Retention {
 public:
  struct Report {
    std::vector<std::filesystem::path> removed;
    std::vector<std::string> warnings;
  };

  Retention(std::filesystem::path run_dir, const KeepRule& keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  /// Adds a checkpoint that the ranks have just verified. Its files are read again only if they change.
  void trust(const Found& checkpoint);

  /// Starts a pass over the checkpoints of steps up to `step`, newest first, and returns at once. The pass verifies the
  /// checkpoints that are not verified yet, and removes old checkpoints. A checkpoint of a later step is never touched:
  /// it is one that the run found damaged when it resumed, and skipped. If a pass is running, the new pass starts after
  /// it. `ranked`: steps by their validation loss, the best first (Ranking). With newest = 0 nothing is done.
  void start(int64_t step, std::vector<int64_t> ranked = {});
  /// Returns the results since the last call and never waits. Call it regularly, since it also starts pending work.
  Report poll();
  /// Waits until all work is done and returns the results since the last call.
  Report wait();

 private:
  struct Pass {
    int64_t step = -1;
    std::vector<int64_t> ranked;
  };
  void work(const Pass& pass, const BackgroundJob::Cancelled& cancelled);
  std::set<int64_t> best_of(const std::vector<Found>& found, const std::vector<int64_t>& ranked,
                            const BackgroundJob::Cancelled& cancelled);
  bool is_good(const Found& checkpoint, const BackgroundJob::Cancelled& cancelled);
  void collect();

  struct Known {
    std::string stamp;   ///< sizes, inodes and times of the files at verification
    std::string damage;  ///< text of the error; empty if the checkpoint is valid
  };

  std::filesystem::path run_dir_;
  KeepRule keep_;
  std::map<std::filesystem::path, Known> known_;  ///< used only by the job's thread while the job runs
  std::vector<Found> trusted_;                    ///< checkpoints to be added to known_
  Report report_;                                 ///< used only by the job's thread while the job runs
  std::optional<Pass> next_;                      ///< the next pass, if one is requested
  BackgroundJob job_{"ashlar-retain"};            ///< declared last so that it is destroyed first
};

}  // namespace ashlar::checkpoint
