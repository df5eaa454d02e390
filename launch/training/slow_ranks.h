#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::training {

/// Detects ranks whose own work takes longer than expected. The result depends only on the given times.
///   Times are grouped in windows of 10 steps. Each window is represented by its second shortest time: occasional
/// disturbances have no effect, a permanent slowdown does. A rank is compared with the lower median of the ranks of its
/// pipeline stage, which have the same work. If each stage has one rank, a rank is compared with its own first 50
/// steps, scaled by the median slowdown of all ranks since then. A rank becomes slow after two consecutive windows in
/// which it takes at least 1.3 times the time that it is compared with, and at least 1 ms more than that time. It
/// recovers after two consecutive windows in each of which at least one of these two conditions is not met.
class SlowRanks {
 public:
  static constexpr int kWindow = 10;   ///< steps per window
  static constexpr int kInARow = 2;    ///< consecutive windows after which a rank becomes slow or recovers
  static constexpr int kOwnFirst = 5;  ///< number of first windows with which a rank alone in its stage is compared
  static constexpr double kRatio = 1.3;
  static constexpr double kLeastMs = 1;

  /// Returns the second shortest time, or the only one. At least one time is required.
  static double time_of_window(std::span<const double> steps_ms);

  /// `stages`: the pipeline stage of each rank.
  explicit SlowRanks(std::vector<int64_t> stages);

  struct Finding {
    int64_t rank = 0;
    double ms = 0;
    double usual_ms = 0;  ///< time that `ms` is compared with
    bool lone = false;    ///< true: compared with its own first windows; false: with the ranks of its stage
    bool over = false;    ///< true: no longer slow; false: slow now
  };
  /// Adds a window: `ms` has the time of each rank. Returns the ranks that became slow or recovered.
  std::vector<Finding> see(std::span<const double> ms);

 private:
  std::vector<double> usual(std::span<const double> ms);  // compared time of each rank; empty: not known yet

  const std::vector<int64_t> stages_;
  bool lone_ = true;                        // true if each stage has one rank
  std::vector<std::vector<double>> first_;  // first windows of each rank, if lone_
  std::vector<int> row_;                    // windows in a row, for each rank: positive if slow, negative if not
  std::vector<bool> slow_;
};

}  // namespace ashlar::training
