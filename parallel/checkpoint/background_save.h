#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/background_job.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/save.h"
#include "parallel/checkpoint/snapshot.h"

namespace ashlar::checkpoint {

/// State of a rank in the current phase of a save. The state of the save is the maximum over all ranks.
enum class SaveState : uint8_t {
  kDone,     ///< no save is in progress, or this rank's part of the phase is finished
  kWriting,  ///< this rank's background thread, or the copy of the state to host memory, is still running
  kFailed,   ///< this rank's part of the phase has failed
};

/// Saves checkpoints while training continues. All ranks begin a save after the same step. After each further step each
/// rank calls `state`, the ranks reduce the results to the maximum, and each rank passes the maximum to `advance`. So
/// all ranks change the phase after the same step. Background threads write, sync, read back and delete files; they
/// never communicate with other ranks.
///   Phases: rank 0 creates the directory; each rank writes its files; rank 0 gathers the file lists of all ranks,
/// writes the manifest and renames the directory to its final name; each rank reads its files back from disk. If a
/// phase before the last one fails, the threads of all ranks end, and then rank 0 removes the files (except after the
/// errors listed at SaveArgs::check and PartialDirectory::commit). If reading back fails, the files stay and the damage
/// is reported. If a process is killed at any moment, the earlier checkpoints stay complete, and the new one is either
/// complete or does not exist under its final name.
class BackgroundSave {
 public:
  explicit BackgroundSave(comm::ControlPlane& ranks) : ranks_(ranks) {}

  /// Allocates the memory for the snapshot of this rank.
  void reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer* optimizer);
  int64_t snapshot_bytes() const { return snapshot_.reserved_bytes(); }
  bool copies_beside_host() const { return snapshot_.copies_beside_host(); }

  enum class From { kCopy, kState };
  /// Begins a save. Requires free(). With `from` = kCopy the state is copied to host memory, and code that changes the
  /// state must wait for the returned event. With kState nothing is copied and null is returned; the state must then
  /// not change until the save is complete.
  Event* begin(const Ctx& ctx, const SaveArgs& args, From from);
  /// True if a save may begin: no save is in progress, or the current one is only being read back.
  bool free() const { return !next_ && (phase_ == Phase::kIdle || phase_ == Phase::kVerify); }
  /// Path of the next save if there is one, else of the current one. Not to be called when idle.
  std::filesystem::path path() const { return (next_ ? *next_ : now_).path(); }
  bool idle() const { return phase_ == Phase::kIdle && !next_; }

  /// Result of a save, the same on all ranks.
  struct Outcome {
    std::optional<Saved> saved;         ///< set when the checkpoint is complete under its final name
    std::optional<Found> verified;      ///< set when all files were read back and are valid
    std::optional<std::string> damage;  ///< text of the error if a file read back is damaged
    std::optional<Error> failure;  ///< error of a failed save, whose files are removed unless the error says otherwise
  };
  SaveState state();
  /// Called by all ranks with the maximum of the states. Communicates only when the phase changes.
  Outcome advance(SaveState largest);
  /// Waits for this rank's part of the phase, reduces the state over all ranks, and calls `advance`.
  Outcome wait_phase();

 private:
  // kPrepare: rank 0 creates the directory, and the copy of the state to host memory may still be running.
  enum class Phase : uint8_t { kIdle, kPrepare, kWrite, kCommit, kVerify, kStop, kRemove };
  struct Request {
    std::filesystem::path run_dir;
    TrainingState state;
    std::string config_toml, tokenizer_json;
    io::Metadata metadata;
    std::vector<DataRecord> data;
    std::function<void()> check, committed;
    std::chrono::steady_clock::time_point begun;
    std::filesystem::path path() const;
  };

  void enter(Phase phase);
  Outcome fail();
  Manifest manifest_of(const std::vector<std::string>& lists) const;

  comm::ControlPlane& ranks_;
  Snapshot snapshot_;
  Phase phase_ = Phase::kIdle;
  std::optional<Request> next_;  ///< the next save, which begins after the current one is read back
  Request now_;
  std::optional<PartialDirectory> directory_;  ///< set on rank 0 only
  Manifest list_;                              ///< files and tensors that this rank has written
  Saved saved_;
  std::optional<Error> failure_;         ///< error of this rank's part of the current phase
  std::optional<Error> shared_failure_;  ///< error with which the save has failed, the same on all ranks
  BackgroundJob job_{"ashlar-saver"};    ///< declared last so that it is destroyed first
};

}  // namespace ashlar::checkpoint
