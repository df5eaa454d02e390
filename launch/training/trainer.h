#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "launch/config/run_config.h"
#include "launch/training/checkpointer.h"
#include "launch/training/engine.h"
#include "launch/training/memory.h"
#include "launch/training/metrics.h"
#include "launch/training/own_work.h"
#include "launch/training/pending_steps.h"
#include "launch/training/run_directory.h"
#include "launch/training/slow_ranks.h"
#include "launch/training/step_batches.h"
#include "launch/training/tuning.h"
#include "launch/training/validation.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "parallel/checkpoint/load.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/flops.h"

namespace ashlar::data {
class Prefetcher;
struct WeightedDataset;
}  // namespace ashlar::data

namespace ashlar::training {

/// What a trainer works with. References must outlive it.
struct TrainerArgs {
  const config::Resolved& resolved;             ///< the same on all ranks
  std::vector<data::WeightedDataset> datasets;  ///< those of data.path, in its order: the reader's from now on
  comm::Bootstrap& bootstrap;                   ///< knows the ranks of the run
  watch::SignalWatch& signals;                  ///< watched already
  MemoryLedger memory;
  Log& log;                 ///< of this rank; what concerns all is said by rank 0
  watch::RankWatch& watch;  ///< of all ranks
  int64_t cores = 0;        ///< that the ranks of this machine share; 0: this process's
  bool restart = false;     ///< begin anew: what the run directory holds is set aside once nothing can fail any more
  /// Makes what computes; empty: kernels::make_backend, as the configuration says.
  std::function<std::unique_ptr<Backend>()> make_backend;
};

/// Trains one configuration from where its run directory stands to its last step. All ranks make one and run it; rank 0
/// logs, and writes everything but the other ranks' parts of checkpoints.
///   On a device whose stream works on its own the host queues a step before it reads what the step before came to
/// (PendingSteps); whatever looks at a step, such as a save, a validation or the end, reads what is pending first.
class Trainer {
 public:
  /// Opens the run directory, allocates, and loads the newest good checkpoint (else run.init_from, else initial
  /// values). The tokenizer of the first dataset goes into checkpoints; the datasets are opened once more, for the
  /// readers of the validation parts. Input error when a rank does not see the run directory.
  explicit Trainer(TrainerArgs args);
  ~Trainer();

  /// Runs to the last step, or to a signal to any rank: then a checkpoint is saved and the signal's code returned.
  /// Throws Error(kNonFinite) for a step with a non-finite loss or gradient: neither it nor a later one has changed the
  /// weights.
  ExitCode run();

 private:
  void open_run_directory();
  EngineOptions watched_options();  ///< of the engine, whose actions the watch sees
  void set_up(TrainerArgs& args);   ///< the rest of the constructor: what may find a peer gone
  void watch_own_work(int64_t local_ranks, int64_t cores);
  ExitCode train();
  checkpoint::LoadArgs load_args(checkpoint::CheckpointReader& reader);
  bool restore();  ///< from the newest good checkpoint of the run directory; false when there is none
  void compare_with_committed(std::optional<int64_t> found) const;  ///< what the run directory remembers
  std::string saved_choices() const;  ///< of algorithms, in the checkpoint that was restored
  /// Before the first step: does its work once without effect, so that all that can be chosen is known, and once more
  /// with what was chosen. Memory that is too little for a step is wanting now.
  void rehearse();
  void queue_step();
  void end_step();      ///< exchanges the message of a step, with the losses of the step whose report is due
  void read_report();   ///< of the oldest pending step: its row, or its error
  void read_pending();  ///< all of them
  void poll_saves();
  bool is_known_to_all(const Error& error) const;
  void report(const StepResult& result, const QueuedStep& step, double step_ms);
  void say_who_is_slow(int64_t step);  ///< by the last message of all, where it tells
  void write_statistics();
  void validate();
  checkpoint::SaveArgs save_args();
  void save();                                                    ///< begins a checkpoint
  void save_last();                                               ///< has one of this step, and waits for it
  StepMessage message(const LossStats& losses);                   ///< of this rank
  std::optional<watch::SignalWatch::Request> stop_request();      ///< exchanges a message; of any rank, the same on all
  std::optional<watch::SignalWatch::Request> stop_heard() const;  ///< the request in the last message of all

  config::RunConfig config_;
  std::string config_toml_, tokenizer_json_;
  std::vector<checkpoint::DataRecord> data_;  ///< what the run reads, for its checkpoints
  io::Metadata metadata_;                     ///< of the checkpoint that the run came from, kept in its own
  comm::Bootstrap& bootstrap_;
  comm::ControlPlane& ranks_;
  bool first_rank_;  ///< the one that logs and writes
  watch::SignalWatch& signals_;
  MemoryLedger memory_;
  PeakMemory peak_memory_;
  Log& log_;
  model::FlopsPerToken flops_;
  RunDirectory directory_;  ///< locked by rank 0
  watch::RankWatch& watch_;
  std::unique_ptr<Backend> backend_;
  std::optional<GpuMonitor> gpu_;  ///< rank 0's, of its device
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<comm::Communicator> device_comm_;  ///< of all ranks; null where the host's serves
  std::optional<mesh::Mesh> mesh_;
  std::optional<Engine> engine_;
  std::optional<Tuning> tuning_;        ///< none where the backend has nothing to choose
  Checkpointer checkpoints_;            ///< after what it saves
  std::optional<MetricsFile> metrics_;  ///< rank 0's
  std::unique_ptr<data::Prefetcher> reader_;
  std::optional<Validation> validation_;
  std::optional<StepBatches> batches_;
  std::optional<OwnWork> own_work_;      ///< none where the stream works on its own
  std::optional<SlowRanks> slow_ranks_;  ///< rank 0's, where it has others, and where each has cores of its own
  std::vector<std::string> hosts_;       ///< of all ranks, on rank 0
  StepMessage heard_;                    ///< of all ranks, the last one
  PendingSteps pending_;
  std::vector<double> recent_ms_;  ///< recent step times, for the time that remains
  double peak_flops_ = 0;          ///< of all ranks
  int64_t step_ = 0;               ///< queued; completed when none is pending
  int64_t tokens_ = 0;             ///< of the steps that are read
  int64_t validated_step_ = -1;
};

}  // namespace ashlar::training
