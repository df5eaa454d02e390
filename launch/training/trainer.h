#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/memory.h"
#include "launch/training/metrics.h"
#include "launch/training/run_directory.h"
#include "launch/training/signals.h"

namespace ashlar::data {
class Prefetcher;
class ValidationStream;
struct WeightedDataset;
}  // namespace ashlar::data

namespace ashlar::training {

/// Trains one configuration from where its run directory stands to its last step.
class Trainer {
 public:
  /// Opens the run directory, allocates, and loads the newest good checkpoint (else run.init_from, else initial
  /// values). `datasets` are those of data.path, in its order: the reader's from now on. The tokenizer of the first
  /// goes into checkpoints; its validation part is opened once more, for a reader of its own.
  Trainer(const config::Resolved& resolved, std::vector<data::WeightedDataset> datasets, const SignalWatch& signals,
          MemoryLedger memory, Log& log);
  ~Trainer();

  /// Runs to the last step, or to a signal: then a checkpoint is saved and the signal's code returned. Throws
  /// Error(kNonFinite) before an update that would use a non-finite loss or gradient.
  ExitCode run();

 private:
  bool restore();  ///< from the newest good checkpoint of the run directory; false when there is none
  StepResult step(MetricsRow& row);
  void report(const MetricsRow& row);
  void write_statistics();
  void validate();
  void save();
  void check_state();  ///< throws Error(kNonFinite) when a weight or moment is not finite

  config::RunConfig config_;
  std::string config_toml_, tokenizer_json_;
  io::Metadata metadata_;  ///< of the checkpoint that the run came from, kept in its own
  const SignalWatch& signals_;
  MemoryLedger memory_;
  Log& log_;
  RunDirectory directory_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::optional<Engine> engine_;
  std::optional<MetricsFile> metrics_;
  std::unique_ptr<data::Prefetcher> reader_;
  std::unique_ptr<data::ValidationStream> validation_;
  std::vector<DeviceBatch> micro_batches_;
  std::vector<double> recent_ms_;  ///< step times of late, for the time that remains
  double peak_flops_ = 0;
  int64_t step_ = 0;  ///< completed
  int64_t tokens_ = 0;
  int64_t saved_step_ = -1;
  int64_t validated_step_ = -1;
};

}  // namespace ashlar::training
