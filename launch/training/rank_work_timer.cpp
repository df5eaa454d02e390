#include "launch/training/rank_work_timer.h"

#include <algorithm>

#include "launch/training/clock.h"
#include "launch/training/slow_ranks.h"

namespace ashlar::training {

std::optional<double> ThreadWaits::add(double step_sec, double waited_sec, int threads) {
  if (threads < 2 || reported_) return std::nullopt;
  available_sec_ += step_sec * (threads - 1);
  waited_sec_ += waited_sec;
  if (++steps_ < kSteps) return std::nullopt;
  const double share = available_sec_ > 0 ? waited_sec_ / available_sec_ : 0;
  steps_ = 0;
  available_sec_ = waited_sec_ = 0;
  if (share <= kMost) return std::nullopt;
  reported_ = true;
  return std::min(share, 1.0);
}

void RankWorkTimer::start() {
  begin_sec_ = now_sec();
  waited_begin_sec_ = engine_.waited_sec();
  if (threads_ != nullptr) threads_begin_sec_ = threads_->waited_sec();
}

void RankWorkTimer::stop() {
  own_sec_ += now_sec() - begin_sec_ - (engine_.waited_sec() - waited_begin_sec_);
  if (threads_ != nullptr) threads_sec_ += threads_->waited_sec() - threads_begin_sec_;
}

void RankWorkTimer::end_step() {
  waiting_ = threads_ == nullptr ? std::nullopt : thread_waits_.add(own_sec_, threads_sec_, threads_->threads());
  last_ms_ = std::max(own_sec_, 0.0) * 1e3;
  window_ms_.push_back(last_ms_);
  own_sec_ = threads_sec_ = 0;
  reported_ = false;
}

void RankWorkTimer::write_to(StepMessage& mine, int rank, int ranks) {
  if (reported_) return;
  reported_ = true;
  mine.slowest = {.rank = rank, .ms = last_ms_};
  if (ranks < 2 || static_cast<int>(window_ms_.size()) < SlowRanks::kWindow) return;
  mine.rank_ms.assign(static_cast<size_t>(ranks), 0);
  mine.rank_ms[static_cast<size_t>(rank)] = SlowRanks::time_of_window(window_ms_);
  window_ms_.clear();
}

}  // namespace ashlar::training
