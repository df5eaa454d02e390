#include "launch/trace/step_recorder.h"

#include <algorithm>
#include <chrono>

#include "core/base/dtype.h"

namespace ashlar::trace {

namespace {

constexpr int64_t kShortestCall = 1000;  // ns

int64_t ns_of(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

int64_t now_ns() { return ns_of(std::chrono::steady_clock::now()); }

StepRecorder::~StepRecorder() {
  if (recording_) engine_->trace(nullptr);
}

void StepRecorder::start() {
  trace_.parts.clear();
  trace_.actions.clear();
  trace_.operations.clear();
  trace_.calls.clear();
  trace_.communicators.clear();
  trace_.dropped = 0;
  open_.clear();
  begin_ = now_ns();
  recording_ = true;
  engine_->trace(this);
}

void StepRecorder::stop() {
  engine_->trace(nullptr);
  recording_ = false;
  const int64_t end = now_ns();
  for (const Open& open : open_)
    if (room()) trace_.operations.push_back(slice_of(*open.operation, {open.begin, end}));
  open_.clear();
}

bool StepRecorder::room() {
  const auto slices =
      std::ssize(trace_.parts) + std::ssize(trace_.actions) + std::ssize(trace_.operations) + std::ssize(trace_.calls);
  if (slices < kMostSlices) return true;
  ++trace_.dropped;
  return false;
}

void StepRecorder::end_action(const pipeline::Action& action) {
  if (room()) trace_.actions.push_back({.action = action, .time = {action_begin_, now_ns()}});
}

void StepRecorder::add(Part part, Interval time) {
  if (room()) trace_.parts.push_back({.part = part, .time = time});
}

OperationSlice StepRecorder::slice_of(const comm::Operation& operation, Interval time) {
  const auto known = std::ranges::find(trace_.communicators, operation.communicator());
  const auto index = known - trace_.communicators.begin();
  if (known == trace_.communicators.end()) trace_.communicators.push_back(operation.communicator());
  const comm::OperationInfo& info = operation.info();
  OperationSlice slice{.kind = info.kind, .communicator = index, .time = time};
  slice.bytes = info.size * (slice.on_data_plane() ? size_of(info.dtype) : 1);
  return slice;
}

void StepRecorder::begun(const comm::Operation& operation, Instant at) {
  open_.push_back({.operation = &operation, .begin = ns_of(at)});
}

void StepRecorder::ended(const comm::Operation& operation, Instant at) {
  const auto open = std::ranges::find(open_, &operation, &Open::operation);
  const int64_t begin = open == open_.end() ? begin_ : open->begin;  // it may be older than the step
  if (open != open_.end()) open_.erase(open);
  if (room()) trace_.operations.push_back(slice_of(operation, {begin, ns_of(at)}));
}

void StepRecorder::called(const comm::Operation& operation, Instant begin, Instant end) {
  const Interval time{ns_of(begin), ns_of(end)};
  if (time.length() < kShortestCall) return;
  std::vector<OperationSlice>& calls = trace_.calls;
  while (!calls.empty() && calls.back().time.begin >= time.begin) calls.pop_back();  // calls inside of this one
  if (room()) calls.push_back(slice_of(operation, time));
}

}  // namespace ashlar::trace
