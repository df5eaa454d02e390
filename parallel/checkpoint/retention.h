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
/// checkpoints count: those older than the `keep`-th valid one are removed, so nothing is removed while fewer are known
/// to be valid. Damaged ones are reported and kept until they are that old.
class Retention {
 public:
  struct Report {
    std::vector<std::filesystem::path> removed;
    std::vector<std::string> warnings;
  };

  Retention(std::filesystem::path run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  /// Adds a checkpoint that the ranks have just verified: it is read again only if its files change.
  void trust(const Found& checkpoint);

  /// Checks the checkpoints of at most `step`, newest first; verifies those not verified yet, and removes old ones.
  /// Later steps belong to damaged checkpoints before which the run resumed and are never touched. Returns at once; if
  /// it is working already, it runs again afterwards. With keep = 0 it does nothing.
  void start(int64_t step);
  /// Returns the results since the last call; never waits. To be called regularly: it also starts pending work.
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
