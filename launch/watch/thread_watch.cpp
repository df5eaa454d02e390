#include "launch/watch/thread_watch.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/watch/process.h"

namespace ashlar::watch {

namespace {

namespace fs = std::filesystem;

// Returns the bytes read and written according to /proc/.../io: "rchar: 6976\nwchar: 0\n...".
uint64_t bytes_in(int fd) {
  const std::string text = text_in(fd);
  uint64_t sum = 0;
  for (const char* key : {"rchar: ", "wchar: "}) {
    const char* at = std::strstr(text.c_str(), key);
    if (at != nullptr) sum += std::strtoull(at + std::strlen(key), nullptr, 10);
  }
  return sum;
}

// Which argument of a system call names its file: a descriptor, or the address of a path.
enum class Subject : uint8_t { kNone, kDescriptor, kFirstPath, kSecondPath };
struct Call {
  long number;
  const char* name;
  Subject subject = Subject::kNone;
};

const Call* find_call(long number) {
  using enum Subject;
  static constexpr Call kCalls[] = {
      {SYS_read, "read", kDescriptor},
      {SYS_write, "write", kDescriptor},
      {SYS_pread64, "pread64", kDescriptor},
      {SYS_pwrite64, "pwrite64", kDescriptor},
      {SYS_readv, "readv", kDescriptor},
      {SYS_writev, "writev", kDescriptor},
      {SYS_fsync, "fsync", kDescriptor},
      {SYS_fdatasync, "fdatasync", kDescriptor},
      {SYS_sync_file_range, "sync_file_range", kDescriptor},
      {SYS_close, "close", kDescriptor},
      {SYS_fallocate, "fallocate", kDescriptor},
      {SYS_ftruncate, "ftruncate", kDescriptor},
      {SYS_fstat, "fstat", kDescriptor},
      {SYS_flock, "flock", kDescriptor},
      {SYS_fcntl, "fcntl", kDescriptor},
      {SYS_getdents64, "getdents64", kDescriptor},
      {SYS_openat, "openat", kSecondPath},
      {SYS_newfstatat, "stat", kSecondPath},
      {SYS_statx, "stat", kSecondPath},
      {SYS_renameat2, "rename", kSecondPath},
      {SYS_unlinkat, "unlink", kSecondPath},
      {SYS_mkdirat, "mkdir", kSecondPath},
      {SYS_futex, "futex"},
      {SYS_ppoll, "ppoll"},
      {SYS_epoll_pwait, "epoll"},
      {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_nanosleep, "nanosleep"},
      {SYS_sched_yield, "sched_yield"},
      {SYS_wait4, "wait4"},
      {SYS_munmap, "munmap"},
      {SYS_msync, "msync"},
      {SYS_connect, "connect"},
      {SYS_recvfrom, "recv"},
#ifdef __x86_64__
      {SYS_poll, "poll"},
      {SYS_epoll_wait, "epoll"},
      {SYS_pause, "pause"},
      {SYS_open, "open", kFirstPath},
      {SYS_stat, "stat", kFirstPath},
      {SYS_lstat, "stat", kFirstPath},
      {SYS_access, "access", kFirstPath},
      {SYS_rename, "rename", kFirstPath},
      {SYS_unlink, "unlink", kFirstPath},
      {SYS_mkdir, "mkdir", kFirstPath},
      {SYS_rmdir, "rmdir", kFirstPath},
#endif
  };
  const auto* found = std::ranges::find_if(kCalls, [&](const Call& call) { return call.number == number; });
  return found == std::end(kCalls) ? nullptr : found;
}

// Returns the text at an address of a process; empty if not readable.
std::string text_at(pid_t process, uint64_t address) {
  std::array<char, 256> text{};
  // Reads at most to the end of the page, since the next page may not be mapped.
  constexpr uint64_t kPage = 4096;
  const size_t size = std::min<uint64_t>(text.size() - 1, kPage - address % kPage);
  const iovec here{.iov_base = text.data(), .iov_len = size};
  const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = size};  // NOLINT: an address
  return process_vm_readv(process, &here, 1, &there, 1, 0) <= 0 ? "" : text.data();
}

// Returns the file of a call. `line` is its line in /proc: call number, arguments, stack pointer, instruction pointer.
std::string file_of(const Call& call, pid_t process, const std::string& line) {
  std::istringstream words(line);
  std::string word;
  uint64_t arguments[2] = {};
  words >> word;
  for (uint64_t& argument : arguments)
    if (words >> word) argument = std::strtoull(word.c_str(), nullptr, 16);
  if (call.subject == Subject::kFirstPath) return text_at(process, arguments[0]);
  if (call.subject == Subject::kSecondPath) return text_at(process, arguments[1]);
  if (call.subject != Subject::kDescriptor) return "";
  std::error_code none;
  const std::string target =
      fs::read_symlink(str_cat("/proc/", process, "/fd/", static_cast<int>(arguments[0])), none).string();
  // A file made by O_TMPFILE is DIR/#NUMBER (deleted).
  const size_t name = target.rfind('/') + 1;
  if (target.ends_with(" (deleted)") && target.find('#', name) == name) return target.substr(0, name) + "<new file>";
  // Only files on a file system count: pipes and sockets wait for processes, and /proc and devices have no disk.
  return target.starts_with("/") && !target.starts_with("/proc/") && !target.starts_with("/dev/") ? target : "";
}

ThreadSnapshot snapshot_of(pid_t process, pid_t thread, const std::string& name) {
  const std::string folder = str_cat("/proc/", process, "/task/", thread, "/");
  ThreadSnapshot snapshot{.thread = thread, .name = name, .state = process_stat(process, thread).state};
  SystemCall in = call_of(process, first_line(folder + "syscall"));
  snapshot.call = std::move(in.call);
  snapshot.file = std::move(in.file);
  snapshot.channel = first_line(folder + "wchan");
  if (snapshot.channel == "0") snapshot.channel.clear();
  return snapshot;
}

std::string describe_frame(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return absl::StrFormat("%p", address);
  const std::string module = fs::path(info.dli_fname).filename().string();
  std::string text =
      absl::StrFormat("%s+0x%x", module, static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
  if (info.dli_sname == nullptr) return text;
  int failed = 0;
  char* plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &failed);
  std::string name = failed == 0 ? plain : info.dli_sname;
  std::free(plain);
  name = name.substr(0, name.find('('));
  return text + " " + name.substr(0, 80);
}

}  // namespace

IoMeter::IoMeter()
    : process_(open("/proc/self/io", O_RDONLY | O_CLOEXEC)),
      own_(open(str_cat("/proc/self/task/", syscall(SYS_gettid), "/io").c_str(), O_RDONLY | O_CLOEXEC)) {}

IoMeter::~IoMeter() {
  if (process_ >= 0) close(process_);
  if (own_ >= 0) close(own_);
}

uint64_t IoMeter::bytes() const {
  const uint64_t own = bytes_in(own_), all = bytes_in(process_);
  return all > own ? all - own : 0;
}

SystemCall call_of(pid_t process, const std::string& line) {
  char* rest = nullptr;
  const long number = std::strtol(line.c_str(), &rest, 10);
  if (rest == line.c_str() || number < 0) return {};  // the thread is not in a system call
  const Call* call = find_call(number);
  if (call == nullptr) return {.call = str_cat("call ", number), .file = ""};
  return {.call = call->name, .file = file_of(*call, process, line)};
}

std::string own_name(pid_t process, pid_t thread) {
  if (thread == process) return "main";
  const std::string name = first_line(str_cat("/proc/", process, "/task/", thread, "/comm"));
  if (!name.starts_with(kThreadPrefix)) return "";
  const std::string own = name.substr(kThreadPrefix.size());
  return own == "signals" || own == "watch" ? "" : own;
}

std::vector<ThreadSnapshot> threads_of(pid_t process) {
  std::vector<ThreadSnapshot> threads = {snapshot_of(process, process, "main")};
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(str_cat("/proc/", process, "/task"), gone)) {
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    const std::string name = thread == process ? "" : own_name(process, thread);
    if (!name.empty()) threads.push_back(snapshot_of(process, thread, name));
  }
  return threads;
}

std::string describe(const ThreadSnapshot& snapshot) {
  return str_cat("state ", std::string(1, snapshot.state), snapshot.call.empty() ? "" : ", in " + snapshot.call,
                 snapshot.file.empty() ? "" : " of " + snapshot.file,
                 snapshot.channel.empty() ? "" : ", at " + snapshot.channel);
}

StackSampler::StackSampler() {
  void* primer[4];
  backtrace(primer, 4);  // the first call loads a library, which a signal handler must not do
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(signal_number(), &action, &before_);
}

StackSampler::~StackSampler() {
  // A thread may still write its answer to a pending request, so the memory of such requests is never freed.
  for (auto& request : unanswered_) {
    if (request->depth < 0) [[maybe_unused]]
      Request* left = request.release();
  }
  if (unanswered_.empty()) sigaction(signal_number(), &before_, nullptr);
}

// Async-signal-safe: `backtrace` has been primed, and glibc finds unwind tables without a lock.
void StackSampler::on_signal(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid())
    return;  // not our request: any process may send this signal
  const int saved = errno;
  auto* request = static_cast<Request*>(info->si_value.sival_ptr);
  if (request != nullptr && request->mark == Request::kMark)
    request->depth = backtrace(request->frames.data(), static_cast<int>(request->frames.size()));
  errno = saved;
}

std::string StackSampler::stack_of(pid_t thread, std::chrono::milliseconds patience) {
  auto request = std::make_unique<Request>();
  siginfo_t info{};
  info.si_signo = signal_number();
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = request.get();
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, signal_number(), &info) != 0) return "";
  const auto end = std::chrono::steady_clock::now() + patience;
  while (request->depth < 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (request->depth < 0) {
    unanswered_.push_back(std::move(request));
    return "";
  }
  std::string text;
  constexpr int kHandlerFrames = 2, kShown = 14;  // frames of the handler and its return; maximum number shown
  for (int i = kHandlerFrames; i < request->depth && i < kHandlerFrames + kShown; ++i)
    text += str_cat(text.empty() ? "" : " < ", describe_frame(request->frames[static_cast<size_t>(i)]));
  return text;
}

std::string describe_threads(StackSampler& sampler) {
  std::string text;
  for (const ThreadSnapshot& snapshot : threads_of(getpid())) {
    const std::string stack = sampler.stack_of(snapshot.thread, std::chrono::milliseconds(150));
    text += str_cat(text.empty() ? "" : "\n", snapshot.name, " thread: ", describe(snapshot),
                    stack.empty() ? "; no answer" : "; " + stack);
  }
  return text;
}

}  // namespace ashlar::watch
