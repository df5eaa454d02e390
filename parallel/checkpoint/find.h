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

/// Removes directories left by killed processes of this program (`step-N.partial`; `step-N.replaced` beside its
/// successor), and renames back a checkpoint whose replacement was interrupted. A directory with such a name but
/// without our marker is kept, with a warning. Returns the removed paths. Only for the owner of the run directory, at
/// start.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log);

/// The search for several ranks, called by all: rank 0 searches and logs, each rank verifies its part of the bytes, and
/// all get the same result or error. Nothing is loaded before they agree.
///
/// newest_good: the newest checkpoint of a run whose every byte verifies; nothing if the run has none. Damaged newer
/// ones are skipped with a warning and the reason. Throws a damaged-data error when all checkpoints are damaged (a run
/// must not silently start over), an input error when one has a newer version. Changes nothing: safe while a trainer
/// is running.
/// resolve: a user's path as a checkpoint: a checkpoint directory itself (not verified yet), or a run directory or its
/// `checkpoints` folder (newest valid one). Input error when it is neither.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log, comm::ControlPlane& ranks);
std::filesystem::path resolve(const std::filesystem::path& path, Log& log, comm::ControlPlane& ranks);
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log,
                                                    comm::ControlPlane& ranks);

struct LoadFoundArgs {
  const std::filesystem::path& path;  ///< load_newest_good: a run directory; load_resolved: as resolve
  Log& log;
  comm::ControlPlane& ranks;
  /// Loads a checkpoint. Called by all ranks, which together read all of it (load_newest_good; load_training does) or
  /// all of its weights (load_resolved; load_weights does). A damaged-data error must be thrown by all, as with
  /// comm::try_on_all_ranks.
  std::function<void(CheckpointReader& reader)> load;
};
/// newest_good and loading in one pass: each byte is read once, since `load` compares all reads with their checksums.
/// On damage it is called again with the next older checkpoint and overwrites what it has loaded. Nothing may be used
/// before this returns.
std::optional<Found> load_newest_good(const LoadFoundArgs& args);
/// resolve and loading of weights in one pass: before `load` each rank verifies its share of the optimizer state, which
/// `load` does not read. For a checkpoint given by its own path only what `load` reads is verified.
std::filesystem::path load_resolved(const LoadFoundArgs& args);

/// Sends rank 0's paths to all ranks.
std::vector<std::filesystem::path> broadcast_paths(comm::ControlPlane& ranks,
                                                   const std::vector<std::filesystem::path>& paths);

}  // namespace ashlar::checkpoint
