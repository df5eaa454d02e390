#include "launch/training/step_all_reduce.h"

#include <algorithm>
#include <utility>

namespace ashlar::training {

namespace {

// Packs microseconds in the high bits and the rank in the low bits, so that the maximum gives the slowest rank.
constexpr int64_t kRanks = int64_t{1} << 24;

int64_t packed(const SlowestRank& slowest) {
  if (slowest.rank < 0) return -1;
  constexpr double kMostUs = 1e11;  // about a day
  return static_cast<int64_t>(std::clamp(slowest.ms * 1e3, 0.0, kMostUs)) * kRanks + slowest.rank;
}

SlowestRank unpacked(int64_t number) {
  if (number < 0) return {};
  return {.rank = number % kRanks, .ms = static_cast<double>(number / kRanks) * 1e-3};
}

}  // namespace

template <typename T>
void StepExchange::Numbers<T>::add(T& place) {
  values.push_back(place);
  places.push_back(&place);
}

template <typename T>
void StepExchange::Numbers<T>::put_back() const {
  for (size_t i = 0; i < places.size(); ++i) *places[i] = values[i];
}

StepExchange::StepExchange(comm::ControlPlane& ranks, const StepMessage& mine)
    : message_(mine), save_(static_cast<int64_t>(mine.save)), slowest_(packed(mine.slowest)) {
  StepMessage& m = message_;
  sum(m.losses.loss);
  sum(m.losses.z_loss);
  sum(m.losses.log_z);
  largest(m.losses.max_log_z);
  largest(m.losses.max_logit);
  sum(m.losses.valid);
  for (double& value : m.layers.sums) sum(value);
  for (double& value : m.layers.maxima) largest(value);
  largest(m.stop);
  largest(save_);
  largest(m.peak_memory_bytes);
  sum(m.next.tokens);
  sum(m.next.valid_targets);
  largest(m.next_data_wait_ms);
  largest(m.unread);
  largest(slowest_);
  for (double& ms : m.rank_ms) sum(ms);
  work_ = ranks.reduce({.label = "message of a step",
                        .sums = sums_.values,
                        .maxima = maxima_.values,
                        .int_sums = int_sums_.values,
                        .int_maxima = int_maxima_.values});
}

StepMessage StepExchange::wait() {
  work_.wait();
  sums_.put_back();
  maxima_.put_back();
  int_sums_.put_back();
  int_maxima_.put_back();
  message_.save = static_cast<SaveState>(save_);
  message_.slowest = unpacked(slowest_);
  return std::move(message_);
}

}  // namespace ashlar::training
