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
  kDone,     ///< no save, or this rank's part of the phase is durable
  kWriting,  ///< its thread is working
  kFailed,   ///< it has failed
};

/// Saves checkpoints while training continues. All ranks begin a save after the same step. After each further step each
/// rank calls `state`, the ranks reduce the results to the maximum, and each rank passes the maximum to `advance`. So
/// phases change on all ranks at once, without further communication. Threads write, sync, read back and delete; they
/// never communicate.
///   Phases: rank 0 creates the directory; each rank writes its files; rank 0 gathers the lists of all ranks, writes
/// the manifest and renames; each rank reads its files back from disk. After a failure all threads end and rank 0
/// removes the files. A killed process leaves the earlier checkpoints, with or without the new one.
class BackgroundSave {
 public:
  explicit BackgroundSave(comm::ControlPlane& ranks) : ranks_(ranks) {}

  /// Allocates the memory for the snapshot of this rank.
  void reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer* optimizer);
  int64_t snapshot_bytes() const { return snapshot_.reserved_bytes(); }

  enum class From { kCopy, kState };
  /// Begins a save. Call when `free`. kCopy: the state is copied to host memory; code that changes it must wait for the
  /// returned event. kState: the state must not change until the save is complete; returns null.
  Event* begin(const Ctx& ctx, const SaveArgs& args, From from);
  /// True if a save may begin: no save is in progress, or the current one is only being read back.
  bool free() const { return !next_ && (phase_ == Phase::kIdle || phase_ == Phase::kVerify); }
  /// Path of the next save if there is one, else of the current one. Not to be called when idle.
  std::filesystem::path path() const { return (next_ ? *next_ : now_).path(); }
  bool idle() const { return phase_ == Phase::kIdle && !next_; }

  /// Result of a save, the same on all ranks.
  struct Outcome {
    std::optional<Saved> saved;         ///< complete under its final name
    std::optional<Found> verified;      ///< read back completely and valid
    std::optional<std::string> damage;  ///< read back and different
    std::optional<Error> failure;       ///< its files are removed, unless the error says otherwise
  };
  SaveState state();
  /// Called by all ranks with the maximum of the states. Communicates only when the phase changes.
  Outcome advance(SaveState largest);
  /// Waits for this rank's part, reduces the state with the other ranks, and advances.
  Outcome wait_phase();

 private:
  // kPrepare: rank 0 creates the directory, and the state may still be being copied.
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
  std::optional<Request> next_;  ///< begins after the current one is read back
  Request now_;
  std::optional<PartialDirectory> directory_;  ///< on rank 0
  Manifest list_;                              ///< this rank's files
  Saved saved_;
  std::optional<Error> failure_;         ///< error of this rank's part of the save
  std::optional<Error> shared_failure_;  ///< error of the save on any rank
  BackgroundJob job_{"ashlar-saver"};    ///< declared last so that it is destroyed first
};

}  // namespace ashlar::checkpoint
