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

/// How a rank stands with the phase that a save is in; the largest of all ranks says how the save stands.
enum class SaveState : uint8_t {
  kDone,     ///< nothing under way, or this rank's part of the phase is durable
  kWriting,  ///< its thread is at work
  kFailed,   ///< it has failed
};

/// Saves checkpoints beside the training. All ranks begin a save after the same step; from then on each asks `state`
/// after each step, the ranks take the largest together, and each gives it to `advance`: phases change on all of them
/// at once, and nothing is exchanged in between. Threads write, sync, read back and delete; they never communicate.
///   Phases: rank 0 makes the directory; each rank writes its files; rank 0 gets the lists of all, writes the manifest
/// and renames; each rank reads its files back from the disk. After a failure: all threads end; rank 0 removes what was
/// written. A killed process leaves the checkpoints of before, or those and the new one.
class BackgroundSave {
 public:
  explicit BackgroundSave(comm::ControlPlane& ranks) : ranks_(ranks) {}

  /// The memory of the snapshot, taken now. Bytes are this rank's.
  void reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer* optimizer);
  int64_t snapshot_bytes() const { return snapshot_.reserved_bytes(); }

  enum class From { kCopy, kState };
  /// Begins. Call when `free`. kCopy: the state is being copied to host memory; what changes it must wait for the event
  /// that is returned. kState: it must stay as it is until the save is over; returns null.
  Event* begin(const Ctx& ctx, const SaveArgs& args, From from);
  /// Whether a save may begin: none is under way, or only being read back.
  bool free() const { return !next_ && (phase_ == Phase::kIdle || phase_ == Phase::kVerify); }
  /// Of the save under way, or of the next one; not when idle.
  std::filesystem::path path() const { return (next_ ? *next_ : now_).path(); }
  bool idle() const { return phase_ == Phase::kIdle && !next_; }

  /// What became of a save, the same on all ranks.
  struct Outcome {
    std::optional<Saved> saved;         ///< under its final name from now on
    std::optional<Found> verified;      ///< read back in full and good
    std::optional<std::string> damage;  ///< read back and not what was written
    std::optional<Error> failure;       ///< nothing of it is left, unless the error says that it stays
  };
  SaveState state();
  /// By all ranks, with the largest state of all. Exchanges something only where the phase changes.
  Outcome advance(SaveState largest);
  /// Waits for the end of this rank's part, takes the largest state with the others, and advances.
  Outcome wait_phase();

 private:
  // kPrepare: rank 0 makes the directory, and copies of the state may be on their way.
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
  std::optional<Request> next_;  ///< begins when the last one has been read back
  Request now_;
  std::optional<PartialDirectory> directory_;  ///< rank 0's
  Manifest list_;                              ///< this rank's files
  Saved saved_;
  std::optional<Error> failure_;         ///< of this rank's part
  std::optional<Error> shared_failure_;  ///< of the save
  BackgroundJob job_{"ashlar-saver"};    ///< last: ends before what it uses
};

}  // namespace ashlar::checkpoint
