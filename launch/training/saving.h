#pragma once

#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "launch/training/checkpointer.h"
#include "launch/training/run.h"
#include "parallel/checkpoint/save.h"

namespace ashlar::training {

/// Progress of a run, as stored in a checkpoint.
struct Progress {
  int64_t step = 0;    ///< completed
  int64_t tokens = 0;  ///< tokens of those steps
};

/// The saving part of a trainer. It decides what a checkpoint contains and when the next save may begin; Checkpointer
/// does the work. All ranks make the same calls at the same steps.
class Saving {
 public:
  /// `tokenizer_json` and `data` are stored in every checkpoint.
  Saving(Run& run, std::string tokenizer_json, std::vector<checkpoint::DataRecord> data);

  const std::string& config_toml() const { return config_toml_; }
  std::span<const checkpoint::DataRecord> data() const { return data_; }

  /// Keeps the metadata of the checkpoint that the run came from, for its own checkpoints.
  void keep(io::Metadata metadata) { metadata_ = std::move(metadata); }
  void keep(const std::string& key, std::string value) { metadata_[key] = std::move(value); }
  std::string kept(const std::string& key) const;  ///< empty: no such key

  /// Records that the run continues from this checkpoint. All ranks have verified it.
  void loaded(const checkpoint::Found& found) { checkpoints_.loaded(found); }
  /// Reserves memory for snapshots, in bytes of this rank. Called before the first step if there will be saves during
  /// the run.
  int64_t reserve();

  /// Begins a checkpoint. Returns how long training waited for it, in ms.
  double save(const Progress& progress);
  /// Called at the end of a run. Saves this step unless it is saved already, and waits until the checkpoint is written.
  void save_last(const Progress& progress);
  /// This rank's contribution to the message of a step, and the action on the combined state of all ranks.
  SaveState state() { return checkpoints_.state(); }
  void poll(SaveState of_all) { checkpoints_.poll(of_all); }
  /// Waits for the current save and begins none.
  void wait() { checkpoints_.wait(); }

 private:
  checkpoint::SaveArgs args(const Progress& progress);
  void enter();
  void leave();

  Run& run_;
  const std::string config_toml_, tokenizer_json_;
  const std::vector<checkpoint::DataRecord> data_;
  io::Metadata metadata_;
  Checkpointer checkpoints_;
};

}  // namespace ashlar::training
