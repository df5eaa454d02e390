#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::training {

/// Detects ranks whose own work takes longer than expected. The result depends only on the given times.
///   Times are grouped in windows of 10 steps, each represented by its second shortest time: occasional disturbances
/// have no effect, a permanent slowdown does. A rank is compared with the lower median of the ranks of its stage, which
/// have the same work. If each stage has one rank, it is compared with its own first 50 steps, corrected by how all
/// ranks have changed since then. A rank is slow when it takes 1.3 times as long and 1 ms more in two consecutive
/// windows, and recovers when it does not in two consecutive windows.
class SlowRanks {
 public:
  static constexpr int kWindow = 10;   ///< steps
  static constexpr int kInARow = 2;    ///< windows
  static constexpr int kOwnFirst = 5;  ///< first windows that a lone rank is compared with
  static constexpr double kRatio = 1.3;
  static constexpr double kLeastMs = 1;

  /// The second shortest of the times; at least one time.
  static double time_of_window(std::span<const double> steps_ms);

  /// The stage of each rank, by rank.
  explicit SlowRanks(std::vector<int64_t> stages);

  struct Finding {
    int64_t rank = 0;
    double ms = 0;
    double usual_ms = 0;  ///< time that it is compared with
    bool lone = false;    ///< compared with its own first windows
    bool over = false;    ///< no longer slow
  };
  /// Adds a window with the time of each rank. Returns the changes.
  std::vector<Finding> see(std::span<const double> ms);

 private:
  std::vector<double> usual(std::span<const double> ms);  // empty: not known yet

  const std::vector<int64_t> stages_;
  bool lone_ = true;                        // each stage has one rank
  std::vector<std::vector<double>> first_;  // windows of each lone rank
  std::vector<int> row_;                    // consecutive windows: slow ones positive, others negative
  std::vector<bool> slow_;
};

}  // namespace ashlar::training
