#pragma once

#include <cstdint>
#include <deque>

#include "launch/terminal/status_line.h"

namespace ashlar::training {

/// Estimates the remaining time of a run: the steps, validations and saves that are still due, each at the mean of its
/// recent times. A validation or save counts once one was measured.
class RemainingTime {
 public:
  /// When the run validates and saves: every so many steps (0: never), and after the last step.
  struct Plan {
    int64_t steps = 0, eval_every = 0, save_every = 0;
  };
  explicit RemainingTime(const Plan& plan) : plan_(plan) {}

  void add_step(double ms) { steps_.add(ms / 1e3, 50); }
  void add_validation(double seconds) { validations_.add(seconds, 3); }
  void add_save(double ms) { saves_.add(ms / 1e3, 3); }
  /// Seconds that remain when step `step` has ended, before its validation and its save.
  double seconds(int64_t step) const;

 private:
  struct Recent {
    std::deque<double> values;
    void add(double value, size_t most);
    double mean() const;  ///< 0 if nothing was added
  };
  Plan plan_;
  Recent steps_, validations_, saves_;
};

/// What the status line shows while a run goes on. Rank 0 has one; it does nothing without a terminal.
class RunStatus {
 public:
  static constexpr size_t kLosses = 50;  ///< steps whose mean loss is shown

  RunStatus(terminal::StatusLine* line, int64_t steps) : line_(line), steps_(steps) {}

  struct Step {
    int64_t step = 0;
    double loss = 0, tokens_per_sec = 0, eta_sec = 0;
  };
  void step(const Step& step);
  void validating(int64_t step, int64_t round, int64_t rounds);
  /// Shown until the next step, for work that blocks: a save, and the wait for it.
  void saving(int64_t step);
  void clear();

 private:
  terminal::StatusLine* line_;  ///< null: none
  int64_t steps_;
  std::deque<double> losses_;
};

}  // namespace ashlar::training
