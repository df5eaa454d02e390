#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/run_device.h"

namespace ashlar::layout_check {

/// A global tensor of the reference, on one rank in host memory, row by row.
struct TensorNumbers {
  std::vector<double> gradient;  ///< of loss + z-loss, before clipping
  std::vector<double> weights;   ///< after the update
  double lr_scale = 1;           ///< factor on the learning rate
};

/// What one rank computes in a training step that runs the whole model.
struct Reference {
  training::StepResult result;
  std::map<std::string, TensorNumbers> tensors;
};

/// Changes an engine's gradients between backward and the update: a test's planted error.
using Tamper = std::function<void(training::Engine&)>;

/// One training step (step 0) of a configuration on the ranks of a mesh, on random tokens. Sample s has
/// T * (1 + s % 4) / 4 targets that count, so that replicas and micro-batches have different numbers of them.
/// (all ranks of the mesh)
class CheckedStep {
 public:
  CheckedStep(const config::RunConfig& config, training::RunDevice& device, comm::Communicator& ranks,
              int64_t num_micro_batches);

  void gradients();  ///< forward and backward, and the gradient norm
  void update();     ///< clips, updates, and waits for the updated weights of all replicas
  void tamper(const Tamper& change) { change(engine_); }

  const training::StepResult& result() const { return result_; }
  training::Engine& engine() { return engine_; }
  mesh::Mesh& mesh() { return mesh_; }

 private:
  const double lr_;
  mesh::Mesh mesh_;
  training::Engine engine_;
  std::vector<training::DeviceBatch> batches_;  ///< of this replica
  training::StepResult result_;
};

/// The step on one rank. `ranks` has this rank alone.
Reference reference_numbers(const config::RunConfig& config, training::RunDevice& device, comm::Communicator& ranks,
                            int64_t num_micro_batches);

/// The elements of a tensor in host memory. The host waits.
std::vector<double> host_values(const Ctx& ctx, const Tensor& tensor);

}  // namespace ashlar::layout_check
