#include "tests/gpu_emulator/work_queues.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace ashlar::emulator {

namespace {

constexpr size_t kCallsRemembered = 4;

void join(WorkQueues::Clock& into, const WorkQueues::Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

bool holds(const WorkQueues::Clock& clock, int stream, uint64_t time) {
  const auto s = static_cast<size_t>(stream);
  return s < clock.size() && clock[s] >= time;
}

/// Sets a value for a scope, whatever is thrown.
template <typename T>
class Within {
 public:
  Within(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~Within() { place_ = before_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  T& place_;
  T before_;
};

}  // namespace

WorkQueues::WorkQueues(Options options) : options_(std::move(options)), random_(options_.seed) {
  if (!options_.before) options_.before = [] {};
  if (!options_.after) options_.after = [] {};
}

int WorkQueues::add_stream() {
  queues_.emplace_back();
  return num_streams() - 1;
}

WorkQueues::Entry& WorkQueues::append(int stream, Call call) {
  ASHLAR_CHECK(!in_host_function_, "[streams] a function that a stream calls on the host, ", running_call_.name,
               ", may not call the device; it calls ", call.name);
  Queue& q = queue(stream);
  join(q.clock, host_);
  const auto s = static_cast<size_t>(stream);
  if (q.clock.size() <= s) q.clock.resize(s + 1, 0);
  q.clock[s] = call.time = ++q.queued;
  call.stream = stream;
  q.entries.push_back({.call = std::move(call), .run = {}, .on_host = false, .wait = {}, .clock = q.clock});
  return q.entries.back();
}

const WorkQueues::Call& WorkQueues::begin(std::string_view name, int stream) {
  if (observer_) observer_(stream, name);
  const int64_t number = num_calls_ + 1;
  Call call{.name = str_cat(name, " (call ", number, " on stream ", stream, ")"), .number = number};
  call_ = append(stream, std::move(call)).call;
  num_calls_ = number;
  places_.push_back({.stream = stream, .time = call_.time});
  last_.push_front(call_.name);
  if (last_.size() > kCallsRemembered) last_.pop_back();
  return call_;
}

void WorkQueues::finish(std::function<bool()> run, bool on_host) {
  Queue& q = queue(call_.stream);
  ASHLAR_CHECK(q.queued == call_.time && !q.entries.empty(), "begin and push come in pairs");
  q.entries.back().run = std::move(run);
  q.entries.back().on_host = on_host;
  if (options_.order == StreamOrder::kAtOnce && !running_) run_until(mark(call_.stream));
}

namespace {

/// Work that is done when it returns; none stays none.
std::function<bool()> at_once(std::function<void()> run) {
  if (!run) return {};
  return [run = std::move(run)] {
    run();
    return true;
  };
}

}  // namespace

void WorkQueues::push(std::function<void()> run) { finish(at_once(std::move(run)), false); }

void WorkQueues::push_host_function(std::function<void()> run) { finish(at_once(std::move(run)), true); }

void WorkQueues::push_step(std::function<bool()> step) { finish(std::move(step), false); }

WorkQueues::Mark WorkQueues::mark(int stream) const {
  const Queue& q = queue(stream);
  return {.stream = stream, .count = q.queued, .clock = q.clock};
}

void WorkQueues::wait_for(int stream, const Mark& mark) {
  if (mark.stream < 0) return;
  if (observer_) observer_(stream, "wait");
  if (mark.stream == stream) return;
  join(queue(stream).clock, mark.clock);
  append(stream, {.name = str_cat("wait for stream ", mark.stream)}).wait = mark;
}

bool WorkQueues::runnable(const Queue& q) const {
  if (q.entries.empty()) return false;
  const Mark& wait = q.entries.front().wait;
  return wait.stream < 0 || done(wait.stream, wait.count);
}

WorkQueues::Outcome WorkQueues::run_one() {
  std::vector<Queue*> ready;
  for (Queue& q : queues_)
    if (runnable(q)) ready.push_back(&q);
  if (ready.empty()) return Outcome::kNoneLeft;
  Queue& q = *ready[random_() % ready.size()];
  Entry entry = std::move(q.entries.front());
  q.entries.pop_front();
  ++q.run;  // whatever it throws
  if (!entry.run) return Outcome::kRan;
  running_call_ = entry.call;
  running_clock_ = entry.clock;
  const Within<bool> running(running_, true);
  const Within<bool> in_host_function(in_host_function_, entry.on_host);
  if (entry.on_host) options_.after();
  const bool finished = entry.run();
  if (entry.on_host) options_.before();
  if (finished) return Outcome::kRan;
  --q.run;
  q.entries.push_front(std::move(entry));
  return Outcome::kNotYet;
}

void WorkQueues::run_until(const Mark& mark) {
  if (mark.stream < 0 || done(mark.stream, mark.count)) return;
  ASHLAR_CHECK(!running_, "[streams] ", running_call_.name, " waits for its own device");
  options_.before();
  struct Closing {
    const std::function<void()>& after;
    ~Closing() { after(); }
  } const closing{options_.after};
  using Time = std::chrono::steady_clock;
  Time::time_point last_ran = Time::now();
  while (!done(mark.stream, mark.count)) {
    const Outcome outcome = run_one();
    ASHLAR_CHECK(outcome != Outcome::kNoneLeft, "streams wait for each other");
    if (outcome == Outcome::kRan) {
      last_ran = Time::now();
      continue;
    }
    std::this_thread::yield();  // what the step waits for may be a process beside this one
    const std::chrono::duration<double> waiting = Time::now() - last_ran;
    ASHLAR_CHECK(waiting.count() < options_.patience_sec, "[streams] nothing has run for ", options_.patience_sec,
                 " seconds but steps that say \"not yet\": ", waiting_steps());
  }
}

std::string WorkQueues::waiting_steps() const {
  std::string text;
  for (const Queue& q : queues_)
    if (runnable(q)) text += str_cat(text.empty() ? "" : ", ", q.entries.front().call.name);
  return text;
}

void WorkQueues::wait_of_host(const Mark& mark) {
  if (mark.stream < 0) return;
  const Queue& q = queue(mark.stream);
  if (q.run < mark.count) {
    host_waits_.push_back(str_cat("stream ", mark.stream, " at ", q.entries[mark.count - q.run - 1].call.name));
    run_until(mark);
  }
  join(host_, mark.clock);
}

bool WorkQueues::reached(const Mark& mark) {
  if (mark.stream < 0) return true;
  if (!done(mark.stream, mark.count)) {
    ASHLAR_CHECK(!running_, "[streams] ", running_call_.name, " asks for an event of its own device");
    options_.before();
    struct Closing {
      const std::function<void()>& after;
      ~Closing() { after(); }
    } const closing{options_.after};
    for (uint64_t n = 1 + random_() % 4; n > 0 && !done(mark.stream, mark.count); --n) run_one();
  }
  if (!done(mark.stream, mark.count)) return false;
  join(host_, mark.clock);
  return true;
}

bool WorkQueues::known(int stream, uint64_t time) const {
  return holds(running_ ? running_clock_ : queue(call_.stream).clock, stream, time);
}

bool WorkQueues::ordered(int64_t earlier, int64_t later) const {
  ASHLAR_CHECK(running_ && later == running_call_.number, "call ", later, " does not run");
  const Place& place = places_.at(static_cast<size_t>(earlier - 1));
  return earlier == later || holds(running_clock_, place.stream, place.time);
}

bool WorkQueues::idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const Queue& q) { return q.entries.empty(); });
}

std::string WorkQueues::last_calls() const {
  std::string text;
  for (const std::string& name : last_) text += str_cat(text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

}  // namespace ashlar::emulator
