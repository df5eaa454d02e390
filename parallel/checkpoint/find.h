#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::checkpoint {

class CheckpointReader;

/// A checkpoint directory under the name `step-N`, or `step-N.replaced` if a process was killed while it replaced
/// `step-N`. Its files are not verified; they may be damaged or missing.
struct Found {
  std::filesystem::path path;
  int64_t step = 0;
};

std::string directory_name(int64_t step);                                     ///< "step-00001234" for 1234
std::filesystem::path checkpoints_dir(const std::filesystem::path& run_dir);  ///< RUN_DIR/checkpoints

/// Returns the checkpoints of a run, oldest first. The list is empty when the run has no checkpoints or no directory.
/// Changes no file.
std::vector<Found> list(const std::filesystem::path& run_dir);

/// Reads all bytes of a checkpoint and compares them with their checksums. Throws a damaged-data error at the first
/// difference, and the input errors of CheckpointReader. Returns early when `cancelled` returns true.
void verify(const std::filesystem::path& checkpoint, const std::function<bool()>& cancelled = {});

/// Cleans up directories that killed processes of this program have left. Removes `step-N.partial`. If there is a
/// `step-N.replaced`, removes it if `step-N` exists, and otherwise renames it back to `step-N`. A directory that is not
/// marked for removal (is_ours in partial.h) is not removed but reported in a warning. Returns the removed paths. Only
/// the process that owns the run directory may call this function, when that process starts.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log);

/// The functions below are called by all ranks. Rank 0 searches and logs, and each rank verifies its part of the bytes.
/// All ranks get the same result or error.
///
/// newest_good: returns the newest checkpoint of a run that has no damaged byte; nullopt if the run has no checkpoint.
/// Each damaged checkpoint is skipped with a warning that gives the reason. Throws a damaged-data error when all
/// checkpoints are damaged (a run must not silently start over), and an input error when a checkpoint has a newer
/// format version. Changes no file, so other processes may call it while a trainer is running.
/// resolve: resolves a user's path. For a checkpoint directory, returns the path (not verified yet); for a run
/// directory or its `checkpoints` folder, the newest valid checkpoint; for `RUN_DIR@best`, the one with the lowest
/// validation loss (ranking.h). Throws an input error for any other path.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log, comm::ControlPlane& ranks);
std::filesystem::path resolve(const std::filesystem::path& path, Log& log, comm::ControlPlane& ranks);
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log,
                                                    comm::ControlPlane& ranks);

struct LoadFoundArgs {
  const std::filesystem::path& path;  ///< load_newest_good: a run directory; load_resolved: a path as for `resolve`
  Log& log;
  comm::ControlPlane& ranks;
  /// Loads a checkpoint. Called by all ranks. For load_newest_good the ranks together must read the whole checkpoint,
  /// as load_training does; for load_resolved they must read all of its weights, as load_weights does. If `load` throws
  /// a damaged-data error, it must throw the error on all ranks, as comm::try_on_all_ranks does.
  std::function<void(CheckpointReader& reader)> load;
};
/// Does the work of newest_good and loads in one pass: `load` compares everything that it reads with the checksums, so
/// each byte is read only once. If a checkpoint is damaged, `load` is called again with the next older checkpoint and
/// overwrites what it has loaded. So nothing that was loaded may be used before this function returns.
std::optional<Found> load_newest_good(const LoadFoundArgs& args);
/// Does the work of resolve and loads weights in one pass. If the user's path is a run directory, each rank first
/// verifies its share of the files that `load` does not read (optimizer state); a checkpoint with any damage is
/// skipped, as in newest_good. If the path is a checkpoint, only the bytes that `load` reads are verified.
std::filesystem::path load_resolved(const LoadFoundArgs& args);

/// Sends rank 0's paths to all ranks.
std::vector<std::filesystem::path> broadcast_paths(comm::ControlPlane& ranks,
                                                   const std::vector<std::filesystem::path>& paths);

}  // namespace ashlar::checkpoint
