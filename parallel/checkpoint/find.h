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

/// A checkpoint directory under its final name. Nothing has been read of it.
struct Found {
  std::filesystem::path path;
  int64_t step = 0;
};

std::string directory_name(int64_t step);                                     ///< "step-00001234"
std::filesystem::path checkpoints_dir(const std::filesystem::path& run_dir);  ///< RUN_DIR/checkpoints

/// The checkpoints of a run, oldest first; empty when there are none or no such directory. Changes nothing.
std::vector<Found> list(const std::filesystem::path& run_dir);

/// The newest checkpoint of a run that verifies to the last byte; empty when the run has none. Each damaged newer one
/// is named with its reason as a warning and skipped. Throws a damaged error when there are checkpoints and all of
/// them are damaged (a run must not begin anew in silence), an input error when one is of a newer version.
/// Changes nothing: safe beside a running trainer.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log);

/// The checkpoint that a user means: a checkpoint directory itself (not verified yet), or a run directory or its
/// `checkpoints` folder (newest good one). Input error that says what was looked for when it is neither.
std::filesystem::path resolve(const std::filesystem::path& path, Log& log);

/// Reads every byte of a checkpoint and compares it with its checksum. Damaged error at the first difference, input
/// error as CheckpointReader. Returns early when `cancelled` says so.
void verify(const std::filesystem::path& checkpoint, const std::function<bool()>& cancelled = {});

/// Removes what killed processes of this program left (`step-N.partial`; `step-N.replaced` beside its successor) and
/// gives a checkpoint that lost its name half-way through a replacement its name back. A directory of such a name
/// without the marker of ours is left as it is, with a warning. Returns what was removed. For the owner of the run
/// directory only, at start.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log);

/// The same for many ranks, called by all of them: rank 0 looks (and logs) alone, each verifies its share of the bytes,
/// and all get the same answer or error. Nothing is loaded before they agree.
std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log, comm::ControlPlane& ranks);
std::filesystem::path resolve(const std::filesystem::path& path, Log& log, comm::ControlPlane& ranks);
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& run_dir, Log& log,
                                                    comm::ControlPlane& ranks);

struct LoadFoundArgs {
  const std::filesystem::path& path;  ///< load_newest_good: a run directory; load_resolved: as resolve
  Log& log;
  comm::ControlPlane& ranks;
  /// Loads from a checkpoint, by all ranks, which between them read all of it (load_newest_good; load_training does)
  /// or all of its weights (load_resolved; load_weights does); a damaged error must be thrown by all, as
  /// comm::try_on_all_ranks does.
  std::function<void(CheckpointReader& reader)> load;
};
/// As newest_good and then loading from it, but each byte is read once: `load` is the check, since every read is
/// compared with its checksum. When it meets damage it is called again with the next older checkpoint, and what it has
/// loaded until then is written over. Nothing may be used before this returns.
std::optional<Found> load_newest_good(const LoadFoundArgs& args);
/// As resolve and then loading weights from it, likewise: before `load` each rank verifies its share of the optimizer
/// state, which `load` does not read. Of a checkpoint that is named itself nothing but what `load` reads is checked.
std::filesystem::path load_resolved(const LoadFoundArgs& args);

/// Rank 0's paths, on all ranks.
std::vector<std::filesystem::path> broadcast_paths(comm::ControlPlane& ranks,
                                                   const std::vector<std::filesystem::path>& paths);

}  // namespace ashlar::checkpoint
