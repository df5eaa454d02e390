#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/base/log.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/checkpoint/retention.h"

namespace ashlar::training {

struct CheckpointerArgs {
  comm::ControlPlane& ranks;
  Log& log;  ///< log of this rank; rank 0 logs the lines that concern all ranks
  std::filesystem::path run_dir;
  checkpoint::KeepRule keep;          ///< which checkpoints are kept
  std::function<void()> check_owned;  ///< RunDirectory::check_owned on rank 0; called when a save fails
  /// Steps by their validation loss, the best first; called on rank 0. Empty: no step was validated.
  std::function<std::vector<int64_t>()> ranked;
  std::function<void(int64_t step, const checkpoint::Saved&)> saved;  ///< called when a checkpoint is complete
};

/// Saves the checkpoints of a run. Each checkpoint is written in the background, logged when complete, read back to
/// verify it, and deleted once enough newer ones are valid, unless the rule keeps it. All ranks make all calls at the
/// same steps. A failed save is logged in one line, leaves no files, and is retried at the next interval. The third
/// failure in a row ends the run with exit code 6, as does a failure of the last save: all ranks throw
/// comm::AllRanksError; a run with one rank throws Error. Earlier checkpoints are kept.
class Checkpointer {
 public:
  explicit Checkpointer(const CheckpointerArgs& args);

  /// Allocates this rank's memory for snapshots of the state and returns its size in bytes. Called before the first
  /// step if a save is due during the run (checkpoint.every).
  int64_t reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer& optimizer);
  bool copies_beside_host() const { return saving_.copies_beside_host(); }  ///< checkpoint::Snapshot
  /// Records the checkpoint from which the run resumes. All ranks have verified it.
  void loaded(const checkpoint::Found& checkpoint);

  bool has(int64_t step) const { return step_ == step; }  ///< true if this step is saved or is being saved
  /// Begins a save of the current state, unless `has` returns true for its step. First waits until the previous save is
  /// written. Returns the event after which the state has been copied: code that changes the state must wait for it.
  /// Returns null if there is nothing to wait for.
  [[nodiscard]] Event* begin(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// Waits until the previous save is written; the save may still be read back afterwards. `begin` waits too.
  void wait_until_free();
  /// `state` returns this rank's value of StepMessage::save. `poll` is called with the maximum of this value over all
  /// ranks, and advances the save.
  SaveState state() { return saving_.state(); }
  void poll(SaveState received);
  /// Called at the end of a run. Saves the state unless its step is already saved or being saved, waits for all saves,
  /// and logs them.
  void finish(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// Waits for the current save and does not begin another. Called if a run ends with an error, so that its last state
  /// is not saved.
  void wait();

 private:
  void log_current_save();
  void note(const checkpoint::BackgroundSave::Outcome& outcome);
  void log_warnings(const checkpoint::Retention::Report& report);

  comm::ControlPlane& ranks_;
  Log& log_;
  checkpoint::BackgroundSave saving_;
  checkpoint::Retention retention_;  ///< used by rank 0 only
  int64_t step_ = -1;                ///< step of the last or current save
  std::function<void()> check_owned_;
  std::function<std::vector<int64_t>()> ranked_;
  std::function<void(int64_t, const checkpoint::Saved&)> saved_;
  bool any_ = false;   ///< true if the run has loaded or saved a checkpoint
  int failures_ = 0;   ///< number of failed saves in a row
  bool last_ = false;  ///< true during the last save of the run
};

}  // namespace ashlar::training
