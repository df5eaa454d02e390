#include "launch/watch/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "launch/watch/process.h"

namespace ashlar::watch {

FlightRecorder::FlightRecorder(RankPage& page, const RankInfo& info, std::shared_ptr<comm::ProgressEngine> engine)
    : page_(page), engine_(std::move(engine)), exceptions_(std::uncaught_exceptions()) {
  const int64_t now = machine_ms();
  page_ = {.job = info.job,
           .machine = info.machine,
           .rank = static_cast<int32_t>(info.rank),
           .ranks = static_cast<int32_t>(info.ranks),
           .started = process_stat(getpid()).started,
           .heartbeat_ms = now,
           .phase_since_ms = now,
           .progress_ms = now};
  info.host.copy(page_.host.data(), page_.host.size() - 1);
  publish(page_.pid, static_cast<int32_t>(getpid()));
  if (engine_ == nullptr) return;
  engine_->observe([this](const comm::OperationInfo& operation_info, std::string_view communicator) {
    operation(operation_info, communicator);
  });
}

FlightRecorder::~FlightRecorder() {
  if (engine_ != nullptr) engine_->observe(nullptr);
  leave(std::uncaught_exceptions() > exceptions_ ? RankState::kFailed : RankState::kFinished);
}

void FlightRecorder::step(int64_t step) {
  publish(page_.step, step);
  tick();
}

void FlightRecorder::step_took(double ms) {
  publish(page_.longest_step_ms, std::max(page_.longest_step_ms, static_cast<int64_t>(ms)));
}

void FlightRecorder::enter(Phase phase, int64_t micro_batch) {
  publish(page_.micro_batch, static_cast<int32_t>(micro_batch));
  publish(page_.phase, phase);
  publish(page_.phase_since_ms, machine_ms());
  tick();
}

void FlightRecorder::tick() { std::atomic_ref<uint64_t>(page_.progress).fetch_add(1, std::memory_order_relaxed); }

void FlightRecorder::operation(const comm::OperationInfo& info, std::string_view communicator) {
  OperationRecord& record = page_.recent[page_.operations % RankPage::kRecords];
  record.info = info;
  const size_t size = communicator.copy(record.communicator.data(), record.communicator.size() - 1);
  record.communicator[size] = '\0';
  publish(page_.operations, page_.operations + 1);
  tick();
}

void FlightRecorder::place(const PerAxis& at) {
  for (const auto& [axis, name] : kAxisNames)
    publish(page_.at[static_cast<size_t>(axis)], static_cast<int32_t>(at[axis]));
}

void FlightRecorder::beat() {
  const int64_t now = machine_ms();
  uint64_t done = look_at(page_.progress);
  if (engine_ != nullptr) {
    done += engine_->completed();
    publish(page_.waiting, static_cast<uint32_t>(engine_->waiting()));
  }
  if (done != seen_) publish(page_.progress_ms, now);
  seen_ = done;
  publish(page_.heartbeat_ms, now);
}

void FlightRecorder::stalled(const FileStall& stall) {
  if (look_at(page_.stall.since_ms) == stall.since_ms) return;  // the same stall
  publish(page_.stall.since_ms, int64_t{0});
  page_.stall.thread = stall.thread;
  page_.stall.call = stall.call;
  page_.stall.file = stall.file;
  publish(page_.stall.since_ms, stall.since_ms);
}

void FlightRecorder::leave(RankState state) {
  RankState running = RankState::kRunning;
  std::atomic_ref<RankState>(page_.state).compare_exchange_strong(running, state);
}

}  // namespace ashlar::watch
