#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/enum_names.h"
#include "parallel/comm/operation.h"
#include "parallel/mesh/mesh.h"
#include "parallel/pipeline/schedule.h"

/// What every rank did in a training step, as the host saw it: recorded by `train` (log.trace_steps), read by
/// `ashlar trace`.
namespace ashlar::trace {

/// The parts of a step, in the main thread of a rank.
enum class Part : uint8_t {
  kForwardBackward,  ///< the pipeline's actions, then kGradientSums
  kGradientSums,     ///< from the last action to the sum of all gradients
  kData,             ///< the micro-batches of the next step are taken and uploaded
  kDataWait,         ///< of that, the time in which the reader had none ready; set at the beginning of kData
  kOptimizer,        ///< gradient norm, update, start of the all-gather of weights
  kExchange,         ///< the message of the step, which all ranks exchange
  kReport,
  kStatistics,
  kValidation,
  kTasks,
  kSave,
};
constexpr auto names_of(Part) {
  return enum_names<Part>("forward and backward", "gradient sums", "next batch", "wait for data", "optimizer",
                          "exchange of results", "report", "statistics", "validation", "tasks", "save");
}
using ashlar::name_of;

/// A stretch of time in nanoseconds. In a StepTrace they count from the beginning of the step on rank 0.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

struct PartSlice {
  Part part = Part::kForwardBackward;
  Interval time;
};
struct ActionSlice {
  pipeline::Action action;
  Interval time;
};
/// An operation from its issue until the rank found that it was complete, cut at the ends of the step. Or a call of the
/// main thread that issues one, waits for it, or moves the data of all that are pending (then the oldest is named).
struct OperationSlice {
  comm::OperationKind kind = comm::OperationKind::kNone;
  int64_t communicator = 0;  ///< index in RankTrace::communicators
  int64_t bytes = 0;         ///< sent, or of the whole vector (comm::OperationInfo::size)
  Interval time;
  /// False for host values, which a control plane exchanges.
  bool on_data_plane() const { return kind < comm::OperationKind::kHostReduce; }
  /// True for what only stages of a pipeline do.
  bool between_stages() const {
    using enum comm::OperationKind;
    return kind == kSend || kind == kRecv || kind == kSendRecv;
  }
};

/// One rank in a traced step. Slices of a list are in order of their ends.
struct RankTrace {
  std::string host;
  int64_t clock_offset = 0;       ///< ns that were added to this rank's clock at the beginning of the step
  int64_t clock_uncertainty = 0;  ///< ns by which the times of this rank may be wrong against those of rank 0
  int64_t dropped = 0;            ///< slices that were not kept (kMostSlices)
  std::vector<std::string> communicators;
  std::vector<PartSlice> parts;
  std::vector<ActionSlice> actions;
  std::vector<OperationSlice> operations, calls;  ///< calls do not overlap
};

/// Limit on the slices of one rank and step.
inline constexpr int64_t kMostSlices = 400'000;

struct StepTrace {
  int64_t step = 0;      ///< counted from 1, as in metrics.jsonl
  double unix_time = 0;  ///< when the step began, in seconds since 1970
  mesh::MeshShape mesh;
  pipeline::ScheduleSpec schedule;
  /// True if a device ran the work that the host only queued: slices are then times of the host alone.
  bool asynchronous = false;
  std::vector<RankTrace> ranks;
};

}  // namespace ashlar::trace
