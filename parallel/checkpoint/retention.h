#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::checkpoint {

/// Keeps the `keep` newest valid checkpoints of a run and removes all older checkpoints, on a thread of one rank. A
/// checkpoint counts as valid only after all its bytes were verified. So nothing is removed while fewer than `keep`
/// checkpoints are known to be valid. A damaged checkpoint is reported; it is removed when it is older than the
/// `keep`-th newest valid one.
class Retention {
 public:
  struct Report {
    std::vector<std::filesystem::path> removed;
    std::vector<std::string> warnings;
  };

  Retention(std::filesystem::path run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  /// Adds a checkpoint that the ranks have just verified. Its files are read again only if they change.
  void trust(const Found& checkpoint);

  /// Starts a pass over the checkpoints of steps up to `step`, newest first, and returns at once. The pass verifies the
  /// checkpoints that are not verified yet, and removes old checkpoints. A checkpoint of a later step is never touched:
  /// it is one that the run found damaged when it resumed, and skipped. If a pass is running, the new pass starts after
  /// it. With keep = 0 nothing is done.
  void start(int64_t step);
  /// Returns the results since the last call and never waits. Call it regularly, since it also starts pending work.
  Report poll();
  /// Waits until all work is done and returns the results since the last call.
  Report wait();

 private:
  void work(int64_t step, const BackgroundJob::Cancelled& cancelled);
  bool is_good(const Found& checkpoint, const BackgroundJob::Cancelled& cancelled);
  void collect();

  struct Known {
    std::string stamp;   ///< sizes, inodes and times of the files at verification
    std::string damage;  ///< text of the error; empty if the checkpoint is valid
  };

  std::filesystem::path run_dir_;
  int64_t keep_;
  std::map<std::filesystem::path, Known> known_;  ///< used only by the job's thread while the job runs
  std::vector<Found> trusted_;                    ///< checkpoints to be added to known_
  Report report_;                                 ///< used only by the job's thread while the job runs
  int64_t next_ = -1;                             ///< step of the next pass; -1 if none is requested
  BackgroundJob job_{"ashlar-retain"};            ///< declared last so that it is destroyed first
};

}  // namespace ashlar::checkpoint
