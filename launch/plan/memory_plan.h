#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/dry_run.h"

namespace ashlar::plan {

struct MemoryPart {
  std::string name;  ///< "weights", "activations kept", ...
  int64_t bytes = 0;
  std::string note;  ///< what determines it, or empty
};

struct MemoryPlanArgs {
  const config::RunConfig& run;
  DeviceKind device = DeviceKind::kCpu;
  int64_t data_bytes = 0;     ///< tokens of the datasets that a rank holds (data::most_resident_bytes)
  int64_t program_bytes = 0;  ///< of the process without tensors
};

/// The memory that a run needs, of the rank that needs most.
struct MemoryPlan {
  std::vector<RankMemory> stages;  ///< the rank that needs most of each pipeline stage
  size_t stage = 0;                ///< the stage that needs most
  std::vector<MemoryPart> parts;   ///< of the device; on the CPU, of the host
  std::vector<MemoryPart> host;    ///< of the host beside a GPU; empty on the CPU
  int64_t bytes = 0;               ///< sum of `parts`
  /// Like `bytes`, if all tokens choose experts of one rank; equal to `bytes` if that changes nothing.
  int64_t one_sided_bytes = 0;

  const RankMemory& worst() const { return stages[stage]; }
};

/// Plans the memory of a resolved configuration by a dry run of one rank per pipeline stage. Pure. The configuration
/// needs what a training step needs: sequence length, micro-batch, global batch, mesh.
MemoryPlan memory_plan(const MemoryPlanArgs& args);

/// Returns the bytes of activations that rank `rank` reserves before the first step: what they take if its experts get
/// mesh.expert_reserve times their even share of the tokens. 0 if nothing is reserved.
int64_t activations_to_reserve(const config::RunConfig& run, int64_t rank);

}  // namespace ashlar::plan
