#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::checkpoint {

/// Keeps the newest checkpoints of a run and removes older ones, on a thread of one rank. Only checkpoints that have
/// been verified in full count: everything older than the `keep`-th good one goes, so nothing is removed while fewer
/// are known to be good. Damaged ones are named and left where they are until they are that old.
class Retention {
 public:
  struct Report {
    std::vector<std::filesystem::path> removed;
    std::vector<std::string> warnings;
  };

  Retention(std::filesystem::path run_dir, int64_t keep) : run_dir_(std::move(run_dir)), keep_(keep) {}

  /// A checkpoint that the ranks have just verified in full: it is not read again unless its files change.
  void trust(const Found& checkpoint);

  /// Looks through the checkpoints of at most `step` (later ones are damaged ones that the run went back behind, and
  /// never touched), newest first, reads in full those that have not been read, and removes. Returns at once; when it
  /// is at work already, it begins anew afterwards. With keep = 0 it does nothing.
  void start(int64_t step);
  /// What has been done since the last call; never waits. To be called now and then: it also begins what is due.
  Report poll();
  /// The same, when there is nothing left to do.
  Report wait();

 private:
  void work(int64_t step, const BackgroundJob::Cancelled& cancelled);
  bool is_good(const Found& checkpoint, const BackgroundJob::Cancelled& cancelled);
  void collect();

  struct Known {
    std::string stamp;   ///< of its files when it was verified
    std::string damage;  ///< empty: good
  };

  std::filesystem::path run_dir_;
  int64_t keep_;
  std::map<std::filesystem::path, Known> known_;  ///< the thread's while it works
  std::vector<Found> trusted_;                    ///< to be added to them
  Report report_;                                 ///< the thread's while it works
  int64_t next_ = -1;                             ///< begin anew with this step
  BackgroundJob job_{"ashlar-retain"};            ///< last: ends before what it uses
};

}  // namespace ashlar::checkpoint
