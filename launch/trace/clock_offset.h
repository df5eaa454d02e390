#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "launch/trace/step_trace.h"

namespace ashlar::trace {

/// How far a clock is behind that of rank 0.
struct ClockOffset {
  int64_t offset = 0;       ///< ns to add to the clock
  int64_t uncertainty = 0;  ///< the offset is right to within so many ns
};

/// Offset of a clock by barriers: `own` and `first` are the times at which this rank and rank 0 entered and left each.
/// No rank leaves a barrier before all have entered it, so each barrier bounds the offset from both sides. The result
/// is the middle of what all of them allow, or 0 if `same_machine` (ranks that read one clock) and 0 is allowed.
ClockOffset offset_between(std::span<const Interval> own, std::span<const Interval> first, bool same_machine);

/// Offset at a time between two measurements, one at each end of a step: linear, since clocks of machines drift.
class ClockLine {
 public:
  struct Point {
    int64_t at = 0;  ///< by this rank's clock
    ClockOffset offset;
  };
  ClockLine() = default;
  ClockLine(const Point& begin, const Point& end) : begin_(begin), end_(end) {}

  int64_t on_first_rank(int64_t own) const;  ///< converts a time of this rank to the clock of rank 0
  int64_t uncertainty() const;               ///< the larger one of both ends

 private:
  Point begin_, end_;
};

}  // namespace ashlar::trace
