#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "launch/training/checkpointer.h"
#include "launch/training/run.h"
#include "parallel/checkpoint/save.h"

namespace ashlar::training {

/// Where a run stands, as a checkpoint keeps it.
struct Progress {
  int64_t step = 0;    ///< completed
  int64_t tokens = 0;  ///< of those steps
};

/// The saving part of a trainer: which state goes into a checkpoint and when the next one may begin. Checkpointer does
/// the work. All ranks call everything at the same steps.
class Saving {
 public:
  /// `tokenizer_json` and `data` go into every checkpoint.
  Saving(Run& run, std::string tokenizer_json, std::vector<checkpoint::DataRecord> data);

  const std::string& config_toml() const { return config_toml_; }
  std::span<const checkpoint::DataRecord> data() const { return data_; }

  /// Metadata of the checkpoint that the run came from: kept in its own.
  void keep(io::Metadata metadata) { metadata_ = std::move(metadata); }
  void keep(const std::string& key, std::string value) { metadata_[key] = std::move(value); }
  std::string kept(const std::string& key) const;  ///< empty: nothing

  /// The run continues from this checkpoint, verified by all ranks.
  void loaded(const checkpoint::Found& found) { checkpoints_.loaded(found); }
  /// Memory for snapshots, in bytes of this rank; before the first step when there will be saves during the run.
  int64_t reserve();

  /// Begins a checkpoint. Returns how long the steps waited for it, in ms.
  double save(const Progress& progress);
  /// At the end of a run: has one of this step, and waits until it is written.
  void save_last(const Progress& progress);
  /// This rank's part of the message of a step, and what comes of that of all ranks.
  SaveState state() { return checkpoints_.state(); }
  void poll(SaveState of_all) { checkpoints_.poll(of_all); }
  /// Waits for what is being written, begins nothing.
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
