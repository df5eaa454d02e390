#include "launch/trace/clock_offset.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/base/error.h"

namespace ashlar::trace {

ClockOffset offset_between(std::span<const Interval> own, std::span<const Interval> first, bool same_machine) {
  ASHLAR_CHECK(own.size() == first.size() && !own.empty(), "expected equal numbers of barriers, got ", own.size(),
               " and ", first.size());
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < own.size(); ++i) {
    least = std::max(least, first[i].begin - own[i].end);
    most = std::min(most, first[i].end - own[i].begin);
  }
  if (same_machine && least <= 0 && most >= 0) return {};
  // Clocks that drift between the barriers may leave no common value; the uncertainty is then by how much they miss.
  return {.offset = least + (most - least) / 2, .uncertainty = std::abs(most - least) / 2 + 1};
}

int64_t ClockLine::on_first_rank(int64_t own) const {
  const auto between = static_cast<double>(end_.offset.offset - begin_.offset.offset);
  const double length = static_cast<double>(std::max<int64_t>(end_.at - begin_.at, 1));
  const double share = std::clamp(static_cast<double>(own - begin_.at) / length, 0.0, 1.0);
  return own + begin_.offset.offset + std::llround(share * between);
}

int64_t ClockLine::uncertainty() const { return std::max(begin_.offset.uncertainty, end_.offset.uncertainty); }

}  // namespace ashlar::trace
