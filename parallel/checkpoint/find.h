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

/// A checkpoint directory under its final name. Not read yet.
struct Found {
  std::filesystem::path path;
  int64_t step = 0;
};

std::string directory_name(int64_t step);                                     ///< "step-00001234"
std::filesystem::path checkpoints_dir(const std::filesystem::path& run_dir);  ///< RUN_DIR/checkpoints

/// The checkpoints of a run, oldest first; empty when there are none or no such directory. Changes nothing.
std::vector<Found> list(const std::filesystem::path& run_dir);

/// Reads every byte of a checkpoint and compares it with its checksum. Damaged-data error at the first difference,
/// input error as CheckpointReader. Returns early when `cancelled` returns true.
void verify(const std::filesystem::path& checkpoint, const std::function<bool()>& cancelled = {});

/// Removes directories that killed processes of this program have left: `step-N.partial`, and `step-N.replaced` if
/// `step-N` exists. Renames `step-N.replaced` back if its replacement was interrupted. A directory with such a name but
/// without the marker file (kMarkerFile) is kept, with a warning. Returns the removed paths. Only for the owner of the
/// run directory, at start.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log);

/// The search for several ranks, called by all. Rank 0 searches and logs, and each rank verifies its part of the bytes.
/// All ranks get the same result or error, and nothing is loaded before they agree.
///
/// newest_good: returns the newest checkpoint of a run of which every byte is valid; nothing if the run has no
/// checkpoint. Newer ones that are damaged are skipped with a warning that gives the reason. Throws a damaged-data
/// error when all checkpoints are damaged (a run must not silently start over), and an input error when one has a newer
/// version. Changes nothing, so it is safe while a trainer is running.
/// resolve: resolves a user's path. For a checkpoint directory, returns the path (not verified yet); for a run
/// directory or its `checkpoints` folder, the newest valid checkpoint. Input error for anything else.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log, comm::ControlPlane& ranks);
std::filesystem::path resolve(const std::filesystem::path& path, Log& log, comm::ControlPlane& ranks);
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log,
                                                    comm::ControlPlane& ranks);

struct LoadFoundArgs {
  const std::filesystem::path& path;  ///< load_newest_good: a run directory; load_resolved: as resolve
  Log& log;
  comm::ControlPlane& ranks;
  /// Loads a checkpoint. Called by all ranks. For load_newest_good the ranks together must read all of it, as
  /// load_training does; for load_resolved they must read all of its weights, as load_weights does. A damaged-data
  /// error must be thrown on all ranks, as by comm::try_on_all_ranks.
  std::function<void(CheckpointReader& reader)> load;
};
/// Does the work of newest_good and loads in one pass. Each byte is read once, since `load` compares all reads with
/// their checksums. On damage `load` is called again with the next older checkpoint and overwrites what it has loaded,
/// so nothing loaded may be used before this function returns.
std::optional<Found> load_newest_good(const LoadFoundArgs& args);
/// Does the work of resolve and loads weights in one pass. Before `load`, each rank verifies its share of the optimizer
/// state, which `load` does not read. If the user's path is a checkpoint, only what `load` reads is verified.
std::filesystem::path load_resolved(const LoadFoundArgs& args);

/// Sends rank 0's paths to all ranks.
std::vector<std::filesystem::path> broadcast_paths(comm::ControlPlane& ranks,
                                                   const std::vector<std::filesystem::path>& paths);

}  // namespace ashlar::checkpoint
