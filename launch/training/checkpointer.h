#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "core/base/log.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/checkpoint/retention.h"

namespace ashlar::training {

struct CheckpointerArgs {
  comm::ControlPlane& ranks;
  Log& log;  ///< of this rank; what concerns all is said by rank 0
  std::filesystem::path run_dir;
  int64_t keep = 0;                   ///< newest good checkpoints, the others go
  std::function<void()> check_owned;  ///< rank 0's, RunDirectory::check_owned; a save that fails asks it first
};

/// The checkpoints of a run while it trains: saved in the background, said when they are there, read back, retired.
/// Called by all ranks at the same steps. A save that fails is told in one line and tried again at the next interval;
/// the third failure in a row ends the run with exit code 6, as does a last save that fails (comm::AllRanksError, or
/// Error of one rank); the checkpoints of before stay, and nothing of the failed ones.
class Checkpointer {
 public:
  explicit Checkpointer(const CheckpointerArgs& args);

  /// The memory for snapshots: `bytes` of this rank. To be called when saves during the run are wanted.
  int64_t reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer& optimizer);
  /// The checkpoint that the run has loaded, verified by all ranks.
  void loaded(const checkpoint::Found& checkpoint);

  bool has(int64_t step) const { return step_ == step; }  ///< saved, or being saved
  /// Begins a save of the state as it is, unless it `has` that step; waits for the one before to be written. What
  /// changes the state must wait for the event that is returned; null: for nothing.
  [[nodiscard]] Event* begin(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// What `begin` waits for.
  void wait_until_free();
  /// This rank's part of the message of a step, and what comes of that of all ranks.
  SaveState state();
  void poll(SaveState heard);
  /// At the end: saves the state if its last save was another step's, and waits for all that is under way, which it
  /// says.
  void finish(const Ctx& ctx, const checkpoint::SaveArgs& args);
  /// Waits for what is under way, saves nothing new: for a run that ends because its state is not worth saving.
  void wait();

 private:
  void say_what_is_waited_for();
  void note(const checkpoint::BackgroundSave::Outcome& outcome);
  void say(const checkpoint::Retention::Report& report);

  comm::ControlPlane& ranks_;
  Log& log_;
  checkpoint::BackgroundSave saving_;
  checkpoint::Retention retention_;  ///< rank 0's works
  int64_t step_ = -1;                ///< saved last, or being saved
  std::function<void()> check_owned_;
  bool any_ = false;   ///< checkpoints of the run, loaded or saved
  int failures_ = 0;   ///< in a row
  bool last_ = false;  ///< no further interval comes
};

}  // namespace ashlar::training
