#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/io/safetensors.h"
#include "launch/training/checkpointer.h"
#include "launch/training/run.h"
#include "parallel/checkpoint/ranking.h"
#include "parallel/checkpoint/save.h"

namespace ashlar::training {

/// A checkpoint that is complete.
struct SavedCheckpoint {
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

/// Progress of a run, as stored in a checkpoint.
struct Progress {
  int64_t step = 0;    ///< steps completed
  int64_t tokens = 0;  ///< tokens of the completed steps
};

/// The saving part of a trainer. It decides what a checkpoint contains and when the next save may begin; Checkpointer
/// does the work. All ranks make the same calls at the same steps.
class Saving {
 public:
  /// `tokenizer_json` and `data` are stored in every checkpoint.
  Saving(Run& run, std::string tokenizer_json, std::vector<checkpoint::DataRecord> data);

  const std::string& config_toml() const { return config_toml_; }
  std::span<const checkpoint::DataRecord> data() const { return data_; }

  /// Stores the metadata of the checkpoint from which the run continues or starts. The checkpoints of this run contain
  /// it too.
  void keep(io::Metadata metadata) { metadata_ = std::move(metadata); }
  void keep(const std::string& key, std::string value) { metadata_[key] = std::move(value); }
  std::string kept(const std::string& key) const;  ///< value of a stored metadata key; empty if there is no such key

  /// Records that the run continues from this checkpoint. All ranks have verified it.
  void loaded(const checkpoint::Found& found);
  /// Reserves memory for snapshots of the state and returns its size on this rank in bytes. Called before the first
  /// step if a save is due during the run (checkpoint.every).
  int64_t reserve();

  /// Stores the validation loss of the weights after `step`, before their checkpoint is saved or after they were
  /// loaded. It decides which checkpoints are the best.
  void rank(const checkpoint::RankedStep& step);
  /// The best checkpoints that stay (checkpoint.keep_best) and are complete, the best first; on rank 0.
  std::vector<checkpoint::RankedStep> best() const;

  /// Begins a checkpoint. Returns how long training waited for it, in ms.
  double save(const Progress& progress);
  /// Called at the end of a run. Saves the state unless its step is already saved or being saved, and waits until the
  /// checkpoint is complete.
  void save_last(const Progress& progress);
  /// `state` returns this rank's value of StepMessage::save. `poll` is called with the maximum of this value over all
  /// ranks, and advances the save.
  SaveState state() { return checkpoints_.state(); }
  void poll(SaveState of_all) { checkpoints_.poll(of_all); }
  /// Returns the checkpoints that became complete since the last call.
  std::vector<SavedCheckpoint> take_complete() { return std::exchange(complete_, {}); }
  /// Waits for the current save and does not begin another.
  void wait() { checkpoints_.wait(); }

 private:
  checkpoint::SaveArgs args(const Progress& progress);
  void enter();
  void leave();

  Run& run_;
  const std::string config_toml_, tokenizer_json_;
  const std::vector<checkpoint::DataRecord> data_;
  io::Metadata metadata_;
  checkpoint::Ranking ranking_;  ///< used by rank 0 only
  std::vector<SavedCheckpoint> complete_;
  Checkpointer checkpoints_;
};

}  // namespace ashlar::training
