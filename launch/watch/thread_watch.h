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

/// Name prefix of the worker threads of this program ("ashlar-reader").
inline constexpr std::string_view kThreadPrefix = "ashlar-";

/// Returns the name of a worker thread without the prefix ("reader"), or "main" for the main thread. Returns an empty
/// text for other threads and for watch threads.
std::string own_name(pid_t process, pid_t thread);

/// Counts the bytes read and written by this process, except by the thread that constructed this object. Such bytes are
/// progress during long operations. Costs two reads of /proc per call and opens nothing.
class IoMeter {
 public:
  IoMeter();
  IoMeter(const IoMeter&) = delete;
  IoMeter& operator=(const IoMeter&) = delete;
  ~IoMeter();
  /// Returns the bytes since the start of the process; always 0 if the kernel does not count them.
  uint64_t bytes() const;

 private:
  int process_ = -1, own_ = -1;
};

/// State of a thread of a process.
struct ThreadSnapshot {
  pid_t thread = 0;
  std::string name;     ///< "main", or the name after kThreadPrefix
  char state = '?';     ///< as in ProcessStat
  std::string call;     ///< current system call: "futex", "pread64", "call 202"; empty if none
  std::string file;     ///< path of the file of that call; empty if the call has no file
  std::string channel;  ///< kernel function in which the thread waits (wchan), if known
};
/// System call and its file, from a line of /proc/PID/task/TID/syscall.
struct SystemCall {
  std::string call, file;
};
SystemCall call_of(pid_t process, const std::string& line);
/// Returns the states of the main thread and of the named worker threads, without watch threads. The files of their
/// calls are known for this process, and for other processes if the system permits it.
std::vector<ThreadSnapshot> threads_of(pid_t process);
/// Returns "state D, in fsync of /runs/a/checkpoints/step-5.partial/x, at rpc_wait_bit_killable".
std::string describe(const ThreadSnapshot& snapshot);

/// Samples the stacks of threads of this process. It sends a real-time signal, whose handler records the return
/// addresses.
class StackSampler {
 public:
  StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;
  ~StackSampler();
  /// Returns "ashlar+0x1234 name < ...", innermost frame first; empty if the thread does not answer within `patience`.
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
  std::vector<std::unique_ptr<Request>> unanswered_;  ///< requests to which a thread may still write an answer
};

/// Returns the stack and state of the main thread and of each worker thread of this process, one line per thread. For a
/// thread that does not answer, the line has only the state.
std::string describe_threads(StackSampler& sampler);

}  // namespace ashlar::watch
