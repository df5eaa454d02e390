#include "launch/training/run_status.h"

#include <numeric>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/training/terminal_sink.h"

namespace ashlar::training {

namespace {

/// Number of times that something every `every` steps is due from the end of `step` on, and after the last step.
int64_t due_from(int64_t step, int64_t every, int64_t steps) {
  if (every == 0) return 1;
  return steps / every - (step - 1) / every + (steps % every == 0 ? 0 : 1);
}

double share_of(int64_t done, int64_t all) {
  return all > 0 ? static_cast<double>(done) / static_cast<double>(all) : -1;
}

}  // namespace

void RemainingTime::Recent::add(double value, size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

double RemainingTime::Recent::mean() const {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double RemainingTime::seconds(int64_t step) const {
  return steps_.mean() * static_cast<double>(plan_.steps - step) +
         validations_.mean() * static_cast<double>(due_from(step, plan_.eval_every, plan_.steps)) +
         saves_.mean() * static_cast<double>(due_from(step, plan_.save_every, plan_.steps));
}

void RunStatus::step(const Step& s) {
  if (line_ == nullptr || !line_->on()) return;
  losses_.push_back(s.loss);
  if (losses_.size() > kLosses) losses_.pop_front();
  line_->show([&] {
    const double loss = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
    return terminal::Status{.what = str_cat("step ", s.step, "/", steps_),
                            .share = share_of(s.step, steps_),
                            .text = absl::StrFormat("loss %.4f  %s tok/s  eta %s", loss, human_count(s.tokens_per_sec),
                                                    human_seconds(s.eta_sec))};
  });
}

void RunStatus::validating(int64_t step, int64_t round, int64_t rounds) {
  if (line_ == nullptr) return;
  line_->show([&] {
    return terminal::Status{
        .what = str_cat("validating after step ", step), .share = share_of(round, rounds), .text = ""};
  });
}

void RunStatus::saving(int64_t step) {
  if (line_ != nullptr)
    line_->show_now({.what = str_cat("saving after step ", step), .share = share_of(step, steps_), .text = ""});
}

void RunStatus::clear() {
  if (line_ != nullptr) line_->clear();
}

}  // namespace ashlar::training
