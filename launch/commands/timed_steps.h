#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/commands/session.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/run_device.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Reads the configuration for a benchmark of training steps, which needs no dataset. Throws an input error with the
/// prefix `command` if the sequence length or the batch size is missing. `ranks`: the number that the mesh has; 0: all.
config::RunConfig config_of_steps(std::string_view command, const std::string& file,
                                  const std::vector<std::string>& overrides, const Session& session, int64_t ranks = 0);

/// Sets a missing train.micro_batch to 1. Throws an input error with the prefix `command` if the sequence length or the
/// batch size is missing; `file` is where the user should give it.
void complete_step(std::string_view command, const std::string& file, config::RunConfig& config);

/// Timed training steps of a configuration on random tokens. All ranks create one and make the same calls.
class TimedSteps {
 public:
  TimedSteps(const config::RunConfig& config, comm::Bootstrap& bootstrap);

  void step(bool timed);  ///< untimed steps are warm-up

  /// Traffic of this rank over one communicator per step.
  struct Traffic {
    int64_t operations = 0;
    int64_t bytes = 0;  ///< sizes of the vectors of all operations, summed
  };
  struct Result {
    double step_ms = 0, step_ms_min = 0, step_ms_max = 0;
    double forward_backward_ms = 0;
    double tokens_per_sec = 0;
    double peak_flops = 0;  ///< peak FLOP/s of all ranks, measured between the steps
    double share = 0;       ///< share of the peak, with attention counted in full
    double share_causal = 0;
    int64_t gemms = 0;                       ///< matrix products of this rank, per step
    std::map<std::string, Traffic> traffic;  ///< traffic of this rank, per step, by communicator
    int64_t allocator_calls = 0;             ///< system allocations during the timed steps
  };
  Result result() const;                                            ///< medians of the timed steps
  const std::vector<double>& step_ms() const { return total_ms_; }  ///< milliseconds of each timed step

  const config::RunConfig& config() const { return config_; }
  training::Engine& engine() { return engine_; }
  int64_t global_batch() const { return global_batch_; }
  int64_t num_micro_batches() const { return static_cast<int64_t>(slots_.size()); }
  std::string device() { return device_.backend().description(); }

 private:
  int64_t allocator_calls();

  const config::RunConfig config_;
  comm::Bootstrap& bootstrap_;
  const int64_t global_batch_;
  Log log_;  ///< writes to standard error
  training::RunDevice device_;
  mesh::Mesh mesh_;
  training::Engine engine_;
  std::vector<training::DeviceBatch> slots_;
  int64_t steps_ = 0, timed_ = 0;
  std::vector<double> total_ms_, model_ms_, peaks_;
  int64_t gemms_ = 0, allocator_calls_ = 0;
  std::map<std::string, Traffic> traffic_;
};

}  // namespace ashlar::launch
