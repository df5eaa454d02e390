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
  Log& log;  ///< log of this rank; rank 0 logs what concerns all ranks
  std::filesystem::path run_dir;
  int64_t keep = 0;                   ///< number of newest valid checkpoints to keep
  std::function<void()> check_owned;  ///< rank 0's RunDirectory::check_owned; called first when a save fails
};

/// The checkpoints of a running training. They are written in the background, logged when complete, read back, and
/// deleted when old. All ranks make all calls at the same steps. A failed save is logged in one line and retried at the
/// next interval. The third failure in a row ends the run with exit code 6, and so does a failure of the last save
/// (comm::AllRanksError, or Error of one rank). Earlier checkpoints are kept, and failed ones leave no files.
class Checkpointer {
 public:
  explicit Checkpointer(const CheckpointerArgs& args);

  /// Allocates the memory for snapshots and returns its size in bytes on this rank. Called if there will be saves
  /// during the run.
  int64_t reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer& optimizer);
  /// Records the checkpoint that the run has loaded. All ranks have verified it.
  void loaded(const checkpoint::Found& checkpoint);

  bool has(int64_t step) const { return step_ == step; }  ///< saved, or being saved
  /// Begins a save of the current state, unless it `has` that step; first waits until the previous save is written.
  /// Code that changes the state must wait for the returned event; null: nothing to wait for.
  [[nodiscard]] Event* begin(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// Waits until the previous save is written, as `begin` does.
  void wait_until_free();
  /// `state` returns this rank's contribution to the message of a step. `poll` acts on the combined state of all ranks.
  SaveState state() { return saving_.state(); }
  void poll(SaveState received);
  /// Called at the end of a run. Saves the state unless the last save was of the same step, waits for all saves, and
  /// logs them.
  void finish(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// Waits for the current save and begins none: for a run that ends because its state is not worth saving.
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
  bool any_ = false;   ///< the run has a checkpoint, loaded or saved
  int failures_ = 0;   ///< consecutive
  bool last_ = false;  ///< no save follows
};

}  // namespace ashlar::training
