#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::watch {

/// The threads of this program that do its work beside the main one have names with this prefix ("ashlar-reader").
inline constexpr std::string_view kThreadPrefix = "ashlar-";

/// The name of such a thread without it ("reader"), "main" for the main thread; empty for others and what only watches.
std::string own_name(pid_t process, pid_t thread);

/// How much this process reads and writes, less what the thread that made this object does itself: bytes that move show
/// that something gets done where no operation ends. Costs two reads of /proc a call and opens nothing.
class IoMeter {
 public:
  IoMeter();
  IoMeter(const IoMeter&) = delete;
  IoMeter& operator=(const IoMeter&) = delete;
  ~IoMeter();
  /// Bytes since the start; 0 for ever where the kernel does not count.
  uint64_t bytes() const;

 private:
  int process_ = -1, own_ = -1;
};

/// A thread of a process and what the kernel says of it.
struct ThreadSight {
  pid_t thread = 0;
  std::string name;     ///< "main", or what follows the prefix
  char state = '?';     ///< as in ProcessStat
  std::string call;     ///< the system call it is in: "futex", "pread64", "202" or empty
  std::string file;     ///< which that call is about: a path, empty when it is about none
  std::string channel;  ///< where the kernel waits in it, if it says
};
/// What a line of /proc/PID/task/TID/syscall says: call and file of a ThreadSight.
struct CallSight {
  std::string call, file;
};
CallSight call_of(pid_t process, const std::string& line);
/// The main thread and those with a name of ours, but not those that only watch. Files of calls are known of this
/// process, and of others where the system lets this one look.
std::vector<ThreadSight> threads_of(pid_t process);
/// "state D, in fsync of /runs/a/checkpoints/step-5.partial/x, at rpc_wait_bit_killable".
std::string describe(const ThreadSight& sight);

/// Asks threads of this process where they are: a real-time signal whose handler notes the return addresses.
class StackSampler {
 public:
  StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;
  ~StackSampler();
  /// "ashlar+0x1234 name < ...", innermost first; empty when the thread does not answer in time.
  std::string stack_of(pid_t thread, std::chrono::milliseconds patience);

 private:
  struct Request {
    static constexpr uint64_t kMark = 0x6b636174736e6165ULL;
    uint64_t mark = kMark;
    std::atomic<int> depth{-1};
    std::array<void*, 40> frames{};
  };
  static void on_signal(int signal, siginfo_t* info, void* context);
  static int signal_number() { return SIGRTMAX - 2; }

  struct sigaction before_ {};
  std::vector<std::unique_ptr<Request>> unanswered_;  ///< may still be: kept
};

/// Stacks and states of this process' threads, a line each; of one that does not answer its state alone.
std::string describe_threads(StackSampler& sampler);

}  // namespace ashlar::watch
