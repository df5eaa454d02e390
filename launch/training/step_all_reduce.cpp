#include "launch/training/step_all_reduce.h"

#include <algorithm>
#include <utility>

namespace ashlar::training {

namespace {

// Packs microseconds in the high bits and the rank in the low bits, so that the maximum gives the slowest rank.
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

/// Reduces each number of a message; the order is the same on all ranks.
template <typename Numbers>
void exchange(StepMessage& m, Numbers& numbers) {
  numbers.sum(m.losses.loss);
  numbers.sum(m.losses.z_loss);
  numbers.sum(m.losses.log_z);
  numbers.largest(m.losses.max_log_z);
  numbers.largest(m.losses.max_logit);
  numbers.sum(m.losses.valid);
  for (double& sum : m.layers.sums) numbers.sum(sum);
  for (double& maximum : m.layers.maxima) numbers.largest(maximum);
  numbers.largest(m.stop);
  numbers.largest(m.save);
  numbers.largest(m.peak_memory_bytes);
  numbers.sum(m.next.tokens);
  numbers.sum(m.next.valid_targets);
  numbers.largest(m.next_data_wait_ms);
  numbers.largest(m.unread);
  numbers.largest(m.slowest);
  for (double& ms : m.rank_ms) numbers.sum(ms);
}

}  // namespace

struct StepExchange::Writer {
  StepExchange& to;
  void sum(double x) { to.sums_.values.push_back(x); }
  void sum(int64_t x) { to.int_sums_.values.push_back(x); }
  void largest(double x) { to.maxima_.values.push_back(x); }
  void largest(int64_t x) { to.int_maxima_.values.push_back(x); }
  void largest(SaveState x) { largest(static_cast<int64_t>(x)); }
  void largest(const SlowestRank& x) { largest(packed(x)); }
};

struct StepExchange::Reader {
  StepExchange& from;
  template <typename T>
  static T pop(Numbers<T>& numbers) {
    return numbers.values[numbers.next++];
  }
  void sum(double& x) { x = pop(from.sums_); }
  void sum(int64_t& x) { x = pop(from.int_sums_); }
  void largest(double& x) { x = pop(from.maxima_); }
  void largest(int64_t& x) { x = pop(from.int_maxima_); }
  void largest(SaveState& x) { x = static_cast<SaveState>(pop(from.int_maxima_)); }
  void largest(SlowestRank& x) { x = unpacked(pop(from.int_maxima_)); }
};

StepExchange::StepExchange(comm::ControlPlane& ranks, const StepMessage& mine) : message_(mine) {
  Writer writer{*this};
  exchange(message_, writer);
  work_ = ranks.reduce({.label = "message of a step",
                        .sums = sums_.values,
                        .maxima = maxima_.values,
                        .int_sums = int_sums_.values,
                        .int_maxima = int_maxima_.values});
}

StepMessage StepExchange::wait() {
  work_.wait();
  Reader reader{*this};
  exchange(message_, reader);
  return std::move(message_);
}

}  // namespace ashlar::training
