#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::training {

/// Which ranks take longer for their own work than they should: pure, from times.
///   Time comes in windows of 10 steps, of each the second shortest: what disturbs a rank now and then leaves it as it
/// is, what slows it all the time does not. A rank is compared with the lower median of the ranks of its stage, which
/// have the same work; where each stage has one rank, with its own first 50 steps, and how all ranks have changed since
/// then. It is slow when it takes 1.3 times as long and a millisecond more in two windows in a row, and no more when it
/// does not in two.
class SlowRanks {
 public:
  static constexpr int kWindow = 10;   ///< steps
  static constexpr int kInARow = 2;    ///< windows
  static constexpr int kOwnFirst = 5;  ///< windows that a lone rank is compared with
  static constexpr double kRatio = 1.3;
  static constexpr double kLeastMs = 1;

  /// The second shortest of at least one.
  static double time_of_window(std::span<const double> steps_ms);

  /// The stage of each rank, by rank.
  explicit SlowRanks(std::vector<int64_t> stages);

  struct Finding {
    int64_t rank = 0;
    double ms = 0;
    double usual_ms = 0;  ///< what it is compared with
    bool lone = false;    ///< which is its own beginning
    bool over = false;    ///< it was slow, and is no more
  };
  /// One window: the time of each rank. What has changed.
  std::vector<Finding> see(std::span<const double> ms);

 private:
  std::vector<double> usual(std::span<const double> ms);  // empty: not known yet

  const std::vector<int64_t> stages_;
  bool lone_ = true;                        // no rank has another of its stage
  std::vector<std::vector<double>> first_;  // windows of each lone rank
  std::vector<int> row_;                    // windows in a row: slow ones, or those that were not, negative
  std::vector<bool> slow_;
};

}  // namespace ashlar::training
