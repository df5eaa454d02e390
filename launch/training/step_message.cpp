#include "launch/training/step_message.h"

#include <algorithm>

namespace ashlar::training {

namespace {

constexpr int64_t kNumLossSums = 3;

// Microseconds above, the rank below, so that the largest number is that of the slowest.
constexpr int64_t kRanks = int64_t{1} << 24;

int64_t packed(const SlowestRank& slowest) {
  if (slowest.rank < 0) return -1;
  constexpr double kMostUs = 1e11;  // a day
  return static_cast<int64_t>(std::clamp(slowest.ms * 1e3, 0.0, kMostUs)) * kRanks + slowest.rank;
}

SlowestRank unpacked(int64_t number) {
  if (number < 0) return {};
  return {.rank = number % kRanks, .ms = static_cast<double>(number / kRanks) * 1e-3};
}

std::vector<double> sums_of(const StepMessage& mine) {
  std::vector<double> sums{mine.losses.loss, mine.losses.z_loss, mine.losses.log_z};
  sums.insert(sums.end(), mine.rank_ms.begin(), mine.rank_ms.end());
  return sums;
}

}  // namespace

StepExchange::StepExchange(comm::ControlPlane& ranks, const StepMessage& mine)
    : sums_(sums_of(mine)),
      maxima_{mine.losses.max_log_z, mine.losses.max_logit, mine.next_data_wait_ms},
      int_sums_{mine.losses.valid, mine.next.tokens, mine.next.valid_targets},
      int_maxima_{mine.stop, static_cast<int64_t>(mine.save), mine.peak_memory_bytes, mine.unread,
                  packed(mine.slowest)},
      work_(ranks.reduce({.label = "message of a step",
                          .sums = sums_,
                          .maxima = maxima_,
                          .int_sums = int_sums_,
                          .int_maxima = int_maxima_})) {}

StepMessage StepExchange::wait() {
  work_.wait();
  return {.losses = {.loss = sums_[0],
                     .z_loss = sums_[1],
                     .log_z = sums_[2],
                     .max_log_z = maxima_[0],
                     .max_logit = maxima_[1],
                     .valid = int_sums_[0]},
          .stop = int_maxima_[0],
          .save = static_cast<SaveState>(int_maxima_[1]),
          .peak_memory_bytes = int_maxima_[2],
          .next = {.tokens = int_sums_[1], .valid_targets = int_sums_[2]},
          .next_data_wait_ms = maxima_[2],
          .unread = int_maxima_[3],
          .slowest = unpacked(int_maxima_[4]),
          .rank_ms = {sums_.begin() + kNumLossSums, sums_.end()}};
}

}  // namespace ashlar::training
