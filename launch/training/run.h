#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/device/gpu_monitor.h"
#include "launch/config/run_config.h"
#include "launch/terminal/status_line.h"
#include "launch/trace/step_tracer.h"
#include "launch/training/engine.h"
#include "launch/training/memory.h"
#include "launch/training/run_device.h"
#include "launch/training/run_directory.h"
#include "launch/training/task_scores.h"
#include "launch/training/tuning.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::data {
struct WeightedDataset;
}  // namespace ashlar::data

namespace ashlar::training {

/// The plan that was made of a run before its start. Empty without one.
struct RunPlan {
  std::string text;  ///< lines of start.txt
  std::string json;  ///< an object, for events.jsonl
};

/// Arguments of a trainer. References must outlive it.
struct TrainerArgs {
  const config::Resolved& resolved;             ///< the same on all ranks
  std::vector<data::WeightedDataset> datasets;  ///< datasets of data.path, in its order; moved to the reader
  comm::Bootstrap& bootstrap;                   ///< connects the ranks of the run
  watch::SignalWatch& signals;                  ///< already installed
  MemoryLedger memory;
  Log& log;                                ///< log of this rank; rank 0 logs the lines that concern all ranks
  terminal::StatusLine* status = nullptr;  ///< null: none
  watch::RankWatch& watch;                 ///< detects ranks that die or hang
  int64_t cores = 0;  ///< number of cores that the ranks of this machine share; 0: the cores of this process
  /// (all ranks) Returns a text that the model generates, at each validation; empty: none (log.sample).
  std::function<std::string(Engine&)> sample;
  std::unique_ptr<TaskEvaluation> tasks;  ///< for train.eval_tasks; null without
  RunPlan plan;                           ///< of rank 0
  bool restart = false;                   ///< starts over: the old run directory is renamed after all checks
  /// Bytes of activations that this rank reserves before the first step, for mesh.expert_reserve.
  int64_t reserved_activations = 0;
  /// Creates the backend; empty: kernels::make_backend with the configuration.
  std::function<std::unique_ptr<Backend>()> make_backend;
  /// For tests: changes the engine's options; empty: nothing.
  std::function<void(EngineOptions&)> change_engine;
};

/// State shared by all parts of a trainer, from the start of a run to its end. Created by all ranks. No member is
/// replaced afterwards. The current step belongs to StepLoop.
struct Run {
  /// Locks the run directory, makes the device and allocates the model; logs the layout.
  explicit Run(TrainerArgs& args);
  ~Run();

  Ctx ctx() { return engine->ctx(); }
  watch::FlightRecorder& recorder() { return watch.flight_recorder(); }
  pipeline::ScheduleSpec schedule() const;         ///< of training steps
  bool is_known_to_all(const Error& error) const;  ///< true if every rank throws this error

  const config::RunConfig config;
  comm::Bootstrap& bootstrap;
  comm::ControlPlane& ranks;
  const bool first_rank;  ///< true on rank 0, which logs and writes
  watch::SignalWatch& signals;
  watch::RankWatch& watch;
  Log& log;
  terminal::StatusLine* status;                ///< null: none
  std::function<std::string(Engine&)> sample;  ///< TrainerArgs::sample
  MemoryLedger memory;
  RunDirectory directory;  ///< locked by rank 0
  std::unique_ptr<RunDevice> device;
  std::unique_ptr<GpuMonitor> gpu;  ///< monitor of rank 0's GPU; null on other ranks or if unavailable
  std::optional<mesh::Mesh> mesh;
  std::optional<Engine> engine;
  std::vector<std::string> hosts;           ///< host names of all ranks, on rank 0
  std::optional<Tuning> tuning;             ///< absent if the backend has nothing to tune
  std::optional<trace::StepTracer> tracer;  ///< absent if no step is traced (log.trace_steps, log.trace_every)

 private:
  void open_directory();
  void make_device(TrainerArgs& args);
  void make_engine(const TrainerArgs& args);
  void log_layout();
  void make_tracer();
  EngineOptions watched_options();  ///< engine options whose callbacks report progress to the watch and the tracer
};

}  // namespace ashlar::training
