#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/trace/step_trace.h"

/// What a traced step shows: pure functions of a StepTrace.
namespace ashlar::trace {

/// Times of a rank between the beginning of its forward and the end of the exchange of results, in ms.
struct RankSummary {
  /// Share of the schedule (the time from the first action of any stage of this pipeline to the last one) in which the
  /// rank runs no forward or backward: it waits for another stage, transfers, or is done.
  double bubble = 0;
  double computed_ms = 0;      ///< forward, backward, gradient sums and optimizer, without communication
  double communicated_ms = 0;  ///< in calls that issue communication, move its data or wait for other ranks
  double under_way_ms = 0;     ///< at least one operation on buffers was issued and not complete
  double hidden_ms = 0;        ///< of under_way_ms, outside of such calls
};

struct StepSummary {
  double step_ms = 0;                             ///< from the first rank's beginning to the last rank's end
  double clock_uncertainty_ms = 0;                ///< the largest of all ranks
  int64_t dropped = 0;                            ///< slices of all ranks that were not kept
  std::map<std::string, double> part_ms;          ///< by name_of(Part): mean over ranks
  std::map<std::string, double> communicated_ms;  ///< by the name of the communicator: mean over ranks
  double planned_bubble = 0;  ///< of the schedule if all chunks take the same time, backward twice forward
  std::vector<RankSummary> ranks;

  // Absent if a device ran the work, whose times the host does not see:
  std::optional<double> bubble;          ///< mean over ranks
  std::optional<double> matched_bubble;  ///< of the schedule if each chunk takes its mean measured time
  std::optional<double> hidden;          ///< hidden_ms / under_way_ms over all ranks; absent without communication too
  std::optional<int64_t> slowest;        ///< rank with the largest computed_ms; absent for one rank too
  double slowest_by_ms = 0;              ///< by how much it is above the mean of the other ranks
};

StepSummary summary_of(const StepTrace& step);

/// Length of the parts of `time` that `calls` cover, which do not overlap and are in order; only those that `counts`.
int64_t covered(const Interval& time, const std::vector<OperationSlice>& calls, bool (*counts)(const OperationSlice&));
/// "rank 3: pipeline 1, tensor 0", with the axes that have more than one rank.
std::string rank_name(const StepTrace& step, int64_t rank);

}  // namespace ashlar::trace
