#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/device/gpu_monitor.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/memory.h"
#include "launch/training/run_device.h"
#include "launch/training/run_directory.h"
#include "launch/training/tuning.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/signals.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::data {
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
  /// For tests: changes what the engine is made with; empty: nothing.
  std::function<void(EngineOptions&)> change_engine;
};

/// What all parts of a trainer work with, from the start of a run to its end: made once, by all ranks, and not changed.
/// The current step is StepLoop's.
struct Run {
  /// Locks the run directory, makes the device and allocates the model; logs the layout and the parameters.
  explicit Run(TrainerArgs& args);
  ~Run();

  Ctx ctx() { return engine->ctx(); }
  watch::FlightRecorder& recorder() { return watch.flight_recorder(); }
  bool is_known_to_all(const Error& error) const;  ///< every rank throws it

  const config::RunConfig config;
  comm::Bootstrap& bootstrap;
  comm::ControlPlane& ranks;
  const bool first_rank;  ///< the one that logs and writes
  watch::SignalWatch& signals;
  watch::RankWatch& watch;
  Log& log;
  MemoryLedger memory;
  RunDirectory directory;  ///< locked by rank 0
  std::unique_ptr<RunDevice> device;
  std::unique_ptr<GpuMonitor> gpu;  ///< rank 0's, of its device; null: nothing to ask
  std::optional<mesh::Mesh> mesh;
  std::optional<Engine> engine;
  std::vector<std::string> hosts;  ///< of all ranks, on rank 0
  std::optional<Tuning> tuning;    ///< none where the backend has nothing to choose

 private:
  void open_directory();
  void make_device(TrainerArgs& args);
  void make_engine(const TrainerArgs& args);
  void log_model();
  EngineOptions watched_options();  ///< of the engine, whose actions the watch sees
};

}  // namespace ashlar::training
