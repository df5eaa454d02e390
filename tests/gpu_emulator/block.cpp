#include "tests/gpu_emulator/block.h"

#include <utility>

#include "core/base/strings.h"

namespace ashlar::emulator {

void Block::begin_grid(const Grid& grid, const Schedule& schedule) {
  grid_ = &grid;
  policy_ = schedule.policy;
  random_ = Random(schedule.seed);
  const int num_threads = static_cast<int>(grid.block.count());
  threads_.resize(num_threads);
  warps_.resize(num_threads / 32);
  for (int i = 0; i < num_threads; ++i) threads_[i].index = index_in(grid.block, i);
  if (watch_ != nullptr) watch_->begin_launch(grid);
}

void Block::end_grid() {
  shared_.end_block();
  grid_ = nullptr;
}

void Block::run(int64_t number) {
  index_ = index_in(grid_->grid, number);
  shared_.begin_block(grid_->shared_bytes);
  for (Thread& thread : threads_) {
    thread.state = State::kNotBegun;
    thread.copies.clear();
    thread.groups.clear();
    thread.uncommitted = 0;
  }
  for (Warp& warp : warps_) {
    warp.calls.clear();
    warp.ended = 0;
  }
  for (Barrier& barrier : barriers_) {
    barrier.arrived = 0;
    barrier.votes = 0;
    barrier.waiting.clear();
    barrier.past = {};
  }
  mbarriers_.clear();
  if (watch_ != nullptr) watch_->begin_block();
  alive_ = static_cast<int>(threads_.size());
  scheduler_.begin_block(alive_, policy_, random_);

  Fiber host;
  host_ = &host;
  Fiber* const first = spare_fiber();
  const int thread = scheduler_.take();
  threads_[thread].state = State::kRunnable;
  set_running(thread, first);
  Fiber::switch_to(host, *first);
  host_ = nullptr;
  if (error_ != nullptr) {
    spare_.clear();
    for (const std::unique_ptr<Fiber>& fiber : fibers_) {
      fiber->restart();
      spare_.push_back(fiber.get());
    }
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  if (watch_ != nullptr) watch_->end_block();
}

void Block::set_running(int thread, Fiber* fiber) {
  running_ = thread;
  threads_[thread].fiber = fiber;
  stack_ = fiber->stack();
}

Fiber* Block::spare_fiber() {
  if (spare_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(work_on_fiber, this));
    return fibers_.back().get();
  }
  Fiber* const fiber = spare_.back();
  spare_.pop_back();
  return fiber;
}

// What a fiber does all its life: threads that have not begun, one after the other and without a switch between them.
// When a thread is next that waits on another fiber, or none, this one is spare until it is given a new thread.
void Block::work() {
  for (;;) {
    Fiber* const self = threads_[running_].fiber;
    int next = -1;
    try {
      grid_->thread();
      end_thread();
      next = scheduler_.take();
      if (next < 0 && alive_ > 0) fault(deadlock_text(), Loc{});
    } catch (...) {
      error_ = std::current_exception();
    }
    if (error_ != nullptr) Fiber::leave_for_good(*self, *host_);
    if (next >= 0 && threads_[next].state == State::kNotBegun) {
      threads_[next].state = State::kRunnable;
      set_running(next, self);
      continue;
    }
    spare_.push_back(self);
    if (next >= 0) set_running(next, threads_[next].fiber);
    Fiber::switch_to(*self, next >= 0 ? *threads_[next].fiber : *host_);
  }
}

void Block::end_thread() {
  Thread& thread = threads_[running_];
  thread.state = State::kEnded;
  --alive_;
  Warp& warp = warps_[running_ / 32];
  warp.ended |= 1U << lane();
  for (const PendingCall& call : warp.calls) {
    if ((call.operands.mask >> lane() & 1) == 0) continue;
    fault(str_cat("lane ", lane(), " ended, and other lanes wait for it in ", call.name,
                  ": let it take part, or leave ", "it out of the mask"),
          call.operands.loc);
  }
  if (!thread.copies.empty()) {
    fault("the thread ended while its cp.async is on its way: wait for it", thread.copies.front().loc);
  }
  if (barriers_[0].arrived > 0) {
    fault(str_cat("the thread ended while ", barriers_[0].arrived,
                  " threads wait for it at __syncthreads: all threads of a block must come to it"),
          barriers_[0].loc);
  }
}

void Block::make_ready(int thread) {
  threads_[thread].state = State::kRunnable;
  scheduler_.make_ready(thread);
}

void Block::wait(const char* what, Loc loc) {
  Thread& thread = threads_[running_];
  thread.state = State::kWaiting;
  thread.waits_for = what;
  thread.waits_at = loc;
  go_on();
}

void Block::let_others_run(Loc loc) {
  if (policy_ == Policy::kFifo) return;
  threads_[running_].waits_at = loc;
  make_ready(running_);
  go_on();
}

void Block::go_on() {
  const int self = running_, next = scheduler_.take();
  if (next == self) return;
  if (next < 0) fault(deadlock_text(), threads_[self].waits_at);
  Thread& thread = threads_[next];
  if (thread.state == State::kNotBegun) {
    thread.fiber = spare_fiber();
    thread.state = State::kRunnable;
  }
  set_running(next, thread.fiber);
  Fiber::switch_to(*threads_[self].fiber, *thread.fiber);
}

std::string Block::deadlock_text() const {
  struct Place {
    int threads = 0;
    int first = 0;
  };
  std::map<std::string, Place> places;
  int ended = 0;
  for (int i = 0; i < std::ssize(threads_); ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::kEnded) {
      ++ended;
      continue;
    }
    Place& place = places[str_cat(thread.waits_for, " at ", thread.waits_at.text())];
    if (place.threads++ == 0) place.first = i;
  }
  std::string text = "deadlock: no thread of the block can go on";
  for (const auto& [name, place] : places) {
    text += str_cat("; ", place.threads, " wait in ", name, " (first: ", thread_text(place.first), ")");
  }
  if (ended > 0) text += str_cat("; ", ended, " have ended");
  return text;
}

std::string Block::thread_text(int thread) const {
  const uint3 index = threads_[thread].index;
  return str_cat("thread (", index.x, ",", index.y, ",", index.z, ")");
}

Error Block::error(const std::string& place, const std::string& text) const {
  return Error(str_cat("[", grid_->name, " block (", index_.x, ",", index_.y, ",", index_.z, ") ",
                       thread_text(running_), place.empty() ? "" : ", ", place, "] ", text));
}

void Block::fault(const std::string& text, Loc loc) const {
  throw error(loc.file == nullptr ? std::string() : loc.text(), text);
}

}  // namespace ashlar::emulator
