#include "launch/training/slow_ranks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"

namespace ashlar::training {

namespace {

/// Returns the median. For an even number of values it is the lower of the two middle ones, so that the slower of two
/// ranks is the outlier.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double SlowRanks::time_of_window(std::span<const double> steps_ms) {
  std::vector<double> sorted(steps_ms.begin(), steps_ms.end());
  const auto second = sorted.begin() + std::min<int64_t>(1, std::ssize(sorted) - 1);
  std::nth_element(sorted.begin(), second, sorted.end());
  return *second;
}

SlowRanks::SlowRanks(std::vector<int64_t> stages)
    : stages_(std::move(stages)),
      lone_(std::set<int64_t>(stages_.begin(), stages_.end()).size() == stages_.size()),
      first_(stages_.size()),
      row_(stages_.size()),
      slow_(stages_.size()) {}

std::vector<double> SlowRanks::usual(std::span<const double> ms) {
  std::vector<double> usual(ms.size());
  if (!lone_) {
    for (size_t rank = 0; rank < ms.size(); ++rank) {
      std::vector<double> peers;
      for (size_t peer = 0; peer < ms.size(); ++peer)
        if (stages_[peer] == stages_[rank]) peers.push_back(ms[peer]);
      usual[rank] = lower_median(std::move(peers));
    }
    return usual;
  }
  if (first_.front().size() < kOwnFirst) {
    for (size_t rank = 0; rank < ms.size(); ++rank) first_[rank].push_back(ms[rank]);
    return {};
  }
  std::vector<double> changes;
  for (size_t rank = 0; rank < ms.size(); ++rank) {
    usual[rank] = lower_median(first_[rank]);
    changes.push_back(usual[rank] > 0 ? ms[rank] / usual[rank] : 1);
  }
  // A slowdown of all ranks raises the usual time of every rank.
  const double all = std::max(1.0, lower_median(std::move(changes)));
  for (double& value : usual) value *= all;
  return usual;
}

std::vector<SlowRanks::Finding> SlowRanks::see(std::span<const double> ms) {
  ASHLAR_CHECK(ms.size() == stages_.size(), "expected one time per rank, got ", ms.size(),
               " times, ranks = ", stages_.size());
  const std::vector<double> compared = usual(ms);
  std::vector<Finding> findings;
  for (size_t rank = 0; rank < compared.size(); ++rank) {
    const bool slow = ms[rank] >= kRatio * compared[rank] && ms[rank] >= compared[rank] + kLeastMs;
    int& row = row_[rank];
    row = slow ? std::max(row, 0) + 1 : std::min(row, 0) - 1;
    const bool changes = slow_[rank] ? row <= -kInARow : row >= kInARow;
    if (!changes) continue;
    slow_[rank] = !slow_[rank];
    findings.push_back({.rank = static_cast<int64_t>(rank),
                        .ms = ms[rank],
                        .usual_ms = compared[rank],
                        .lone = lone_,
                        .over = !slow_[rank]});
  }
  return findings;
}

}  // namespace ashlar::training
