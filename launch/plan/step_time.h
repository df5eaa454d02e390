#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/plan/device.h"

namespace ashlar::plan {

/// Bytes of the update of a parameter with AdamW in bf16: master, m and v read and written, the gradient read twice
/// (norm, update), the weight written. With m and v in bf16: kNarrowUpdateBytes.
inline constexpr double kUpdateBytes = 34, kNarrowUpdateBytes = 26;

/// Constants of a training system beside the rates of its device. The defaults are Ashlar's. RESULTS.md says how they
/// were found, and what a fit on published steps of other systems gives.
struct System {
  double kernels = 1;          ///< time of what a rank computes, relative to the device's rates
  double data_overlap = 1;     ///< share of the last backward that hides communication of gradients and weights
  double tensor_overlap = 0;   ///< share of a layer's forward products that hides communication of tensor ranks
  double inter_bandwidth = 1;  ///< reached share of Device::inter
  double spread = 0.15;        ///< half width of StepTime's interval, relative; the goal for the error of a prediction
};

/// A part of the step of the rank that computes longest. Parts that wait for each other add up to StepTime::seconds.
struct TimeLine {
  std::string what;    ///< "products", "attention", "tensor communication", ...
  double seconds = 0;  ///< that the step gets longer by
  double hidden = 0;   ///< seconds beside it that run while the rank computes
  double flops = 0;    ///< of a rank, without recomputation; 0: moves bytes
  double bytes = 0;    ///< of memory or of a link, of a rank
};

struct StepTime {
  std::vector<TimeLine> lines;
  double seconds = 0;  ///< of a step
  double low = 0, high = 0;
  double tokens = 0;          ///< of a step
  double model_flops = 0;     ///< of a step, attention causal (parallel/model/flops.h)
  double peak_flops = 0;      ///< of all ranks, flop/s
  double bubble = 0;          ///< share of the time in which stages of the pipeline wait for each other
  int64_t micro_batches = 1;  ///< of one replica
  double tokens_per_second() const { return tokens / seconds; }
  double share_of_peak() const { return model_flops / seconds / peak_flops; }
};

/// Predicts the time of one training step of `run` on its mesh (run.mesh), each rank on one `device`. Pure; needs
/// train.sequence_length, and a micro-batch or global batch as `bench step` does. Throws an input error if the mesh
/// spans several machines and the device has no link between them, or if the model has fewer layers than chunks.
StepTime step_time(const config::RunConfig& run, const Device& device, const System& system = {});

}  // namespace ashlar::plan
