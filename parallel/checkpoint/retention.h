#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::checkpoint {

/// Keeps the newest checkpoints of a run and removes older ones, on a thread of one rank. Only fully verified
/// checkpoints count: those older than the `keep`-th valid one are removed. So nothing is removed while fewer than
/// `keep` are known to be valid. Damaged checkpoints are reported, and are also removed only when they are older than
/// the `keep`-th valid one.
class Retention {
 public:
  struct Report {
    std::vector<std::filesystem::path> removed;
    std::vector<std::string> warnings;
  };

  Retention(std::filesystem::path run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  /// Adds a checkpoint that the ranks have just verified: it is read again only if its files change.
  void trust(const Found& checkpoint);

  /// Starts a pass over the checkpoints of steps up to `step`, newest first. It verifies those that are not verified
  /// yet, and removes old ones. Checkpoints of later steps are damaged ones, which were skipped when the run resumed;
  /// they are never touched. Returns at once. If a pass is running, another one follows it. With keep = 0 nothing is
  /// done.
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
    std::string stamp;   ///< file stamp at verification
    std::string damage;  ///< empty: valid
  };

  std::filesystem::path run_dir_;
  int64_t keep_;
  std::map<std::filesystem::path, Known> known_;  ///< owned by the thread while it works
  std::vector<Found> trusted_;                    ///< checkpoints to be added to known_
  Report report_;                                 ///< owned by the thread while it works
  int64_t next_ = -1;                             ///< run again with this step
  BackgroundJob job_{"ashlar-retain"};            ///< last member: ends before the others
};

}  // namespace ashlar::checkpoint
