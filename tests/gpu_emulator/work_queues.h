#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ashlar::emulator {

/// When the work of streams runs.
enum class StreamOrder : uint8_t {
  kRandom,  ///< when somebody waits or asks: entries of all streams in random order, until what was asked for is
            ///< reached
  kAtOnce,  ///< as soon as it is queued
};

/// The streams of a device as queues. The order within a stream and the events between streams are kept; everything
/// else is left to chance, as on a device. Who knows of what is kept in vector clocks, one a stream and one of the
/// host: `known` tells whether a call comes after another one whatever the chance. Not thread-safe: one thread drives a
/// device.
class WorkQueues {
 public:
  /// By stream: how many of its entries are done.
  using Clock = std::vector<uint64_t>;

  struct Options {
    uint64_t seed = 1;
    StreamOrder order = StreamOrder::kRandom;
    std::function<void()> before = {};  ///< called before work of the device runs, and
    std::function<void()> after = {};   ///< when the host, or a function of the host, goes on
    /// How long the host waits while all that could run answers "not yet" (push_step).
    double patience_sec = 120;
  };

  /// A point in a stream's work; none if the stream is negative.
  struct Mark {
    int stream = -1;
    uint64_t count = 0;
    Clock clock;
  };

  /// A call, from when it is queued.
  struct Call {
    std::string name;  ///< "fill (call 3 on stream 0)"
    int64_t number = 0;
    int stream = -1;
    uint64_t time = 0;  ///< the stream's entries up to it
  };

  explicit WorkQueues(Options options);

  int add_stream();
  int num_streams() const { return static_cast<int>(queues_.size()); }

  /// Announces the next entry of a stream; `push` says what it does. Between the two, `call` is the entry.
  /// Throws Bug where a function of the host calls, as the CUDA runtime forbids.
  const Call& begin(std::string_view name, int stream);
  void push(std::function<void()> run);
  void push_host_function(std::function<void()> run);
  /// Work that waits for what is not of this device, as for other ranks: false says "not yet", and it is asked again
  /// after other entries had their turn. The stream goes on when it says true.
  void push_step(std::function<bool()> step);
  const Call& call() const { return call_; }
  int64_t num_calls() const { return num_calls_; }

  /// The present end of a stream.
  Mark mark(int stream) const;
  /// Later work of the stream comes after the mark. Nothing to wait for in no mark and in the stream's own.
  void wait_for(int stream, const Mark& mark);
  /// The host waits until the mark is reached. Throws a Bug that names the steps where for patience_sec nothing ran but
  /// steps that said "not yet".
  void wait_of_host(const Mark& mark);
  /// Some work runs; then whether the mark is reached. Who asks often enough gets there.
  bool reached(const Mark& mark);

  /// Whether the entry number `time` of a stream is known to be done when the call in hand, or the one that runs,
  /// begins.
  bool known(int stream, uint64_t time) const;
  /// The same for two calls by their numbers, the later one running now.
  bool ordered(int64_t earlier, int64_t later) const;
  /// Whether it has run.
  bool done(int stream, uint64_t time) const { return queues_[static_cast<size_t>(stream)].run >= time; }
  bool idle() const;
  /// The work that the device runs now; null while it runs none, or a function of the host.
  const Call* running() const { return running_ && !in_host_function_ ? &running_call_ : nullptr; }
  /// The last calls queued, the newest first.
  std::string last_calls() const;

  /// Told of each call as it is queued, by name, and of waits for other streams ("wait").
  void observe(std::function<void(int stream, std::string_view name)> observer) { observer_ = std::move(observer); }

  /// Waits of the host that found work to be done, with what they waited for: "stream 0 at adamw (call 81 ...)".
  const std::vector<std::string>& host_waits() const { return host_waits_; }
  void forget_host_waits() { host_waits_.clear(); }

 private:
  struct Entry {
    Call call;
    std::function<bool()> run;  ///< whether it is done; empty: waits only
    bool on_host = false;
    Mark wait;
    Clock clock;
  };
  struct Queue {
    std::deque<Entry> entries;
    uint64_t queued = 0, run = 0;
    Clock clock;
  };
  struct Place {
    int stream;
    uint64_t time;
  };

  Queue& queue(int stream) { return queues_.at(static_cast<size_t>(stream)); }
  const Queue& queue(int stream) const { return queues_.at(static_cast<size_t>(stream)); }
  Entry& append(int stream, Call call);
  void finish(std::function<bool()> run, bool on_host);
  bool runnable(const Queue& queue) const;
  enum class Outcome : uint8_t { kRan, kNotYet, kNoneLeft };
  /// Any entry that may run.
  Outcome run_one();
  void run_until(const Mark& mark);
  /// What keeps streams waiting, by name, when nothing else can run.
  std::string waiting_steps() const;

  Options options_;
  std::mt19937_64 random_;
  std::vector<Queue> queues_;
  Clock host_;
  Call call_, running_call_;
  Clock running_clock_;
  bool running_ = false, in_host_function_ = false;
  int64_t num_calls_ = 0;
  std::vector<Place> places_;  ///< of calls by number
  std::deque<std::string> last_;
  std::vector<std::string> host_waits_;
  std::function<void(int, std::string_view)> observer_;
};

}  // namespace ashlar::emulator
