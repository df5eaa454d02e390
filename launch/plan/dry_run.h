#pragma once

#include <array>
#include <cstdint>

#include "core/device/allocator.h"
#include "launch/config/run_config.h"
#include "launch/plan/device.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::plan {

/// A load of experts that no routing exceeds: all tokens choose as many experts of the planned rank as they may.
inline constexpr double kAllToOneRank = 1e9;

struct DryRun {
  const config::RunConfig& run;
  DeviceKind device = DeviceKind::kCpu;
  mesh::Coordinates at;  ///< of the rank
  /// Tokens that the experts of the rank process, in multiples of their even share.
  double load = 1;
};

/// What a rank allocates in a run: bytes at the high-water mark of each allocator of its backend.
struct RankMemory {
  int64_t rank = 0;
  mesh::Coordinates at;
  std::array<int64_t, kNumMemoryKinds> bytes{};  ///< by MemoryKind
  /// Parts of the activations: the micro-batches of two steps; what forward has kept for backward when it is most; and
  /// how many micro-batches (times chunks) that is of.
  int64_t batches = 0, kept = 0, in_flight = 0;
  int64_t snapshot = 0;  ///< bytes of a checkpoint's copy in host memory; 0 if none is made during the run
  int64_t of(MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  int64_t device_bytes() const;  ///< all kinds but pinned memory
};

/// Runs the engine of one rank as a trainer does (start, steps, validation, statistics) with kernels that compute
/// nothing, among ranks that do not exist, and returns what it allocated. Takes no memory for tensors. Of many
/// micro-batches, as many are run as the schedule has in flight.
RankMemory dry_run(const DryRun& args);

/// Returns dry_run of the rank that needs most in pipeline stage `stage`. Ranks of a stage differ by the experts that
/// they hold and by their shard of the optimizer state.
RankMemory worst_of_stage(const config::RunConfig& run, DeviceKind device, int64_t stage, double load);

}  // namespace ashlar::plan
