#include "launch/watch/thread_watch.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/watch/process.h"

namespace ashlar::watch {

namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "rchar: 6976\nwchar: 0\n..."
uint64_t bytes_in(int fd) {
  char text[256];
  const ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
  if (size <= 0) return 0;
  text[size] = '\0';
  uint64_t sum = 0;
  for (const char* key : {"rchar: ", "wchar: "}) {
    const char* at = std::strstr(text, key);
    if (at != nullptr) sum += std::strtoull(at + std::strlen(key), nullptr, 10);
  }
  return sum;
}

std::string name_of_call(long number) {
  constexpr std::pair<long, const char*> kCalls[] = {
      {SYS_read, "read"},           {SYS_write, "write"},
      {SYS_pread64, "pread64"},     {SYS_pwrite64, "pwrite64"},
      {SYS_readv, "readv"},         {SYS_writev, "writev"},
      {SYS_fsync, "fsync"},         {SYS_fdatasync, "fdatasync"},
      {SYS_openat, "openat"},       {SYS_close, "close"},
      {SYS_fallocate, "fallocate"}, {SYS_ftruncate, "ftruncate"},
      {SYS_futex, "futex"},         {SYS_ppoll, "ppoll"},
      {SYS_epoll_pwait, "epoll"},   {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_nanosleep, "nanosleep"}, {SYS_sched_yield, "sched_yield"},
      {SYS_renameat2, "rename"},    {SYS_newfstatat, "stat"},
      {SYS_flock, "flock"},         {SYS_wait4, "wait4"},
      {SYS_munmap, "munmap"},       {SYS_msync, "msync"},
      {SYS_connect, "connect"},     {SYS_recvfrom, "recv"},
#ifdef __x86_64__
      {SYS_poll, "poll"},           {SYS_epoll_wait, "epoll"},
      {SYS_open, "open"},           {SYS_rename, "rename"},
      {SYS_stat, "stat"},           {SYS_unlink, "unlink"},
      {SYS_mkdir, "mkdir"},         {SYS_pause, "pause"},
#endif
  };
  for (const auto& [call, name] : kCalls)
    if (call == number) return name;
  return str_cat("call ", number);
}

ThreadSight sight_of(pid_t process, pid_t thread, const std::string& name) {
  const std::string folder = str_cat("/proc/", process, "/task/", thread, "/");
  ThreadSight sight{.thread = thread, .name = name, .state = process_stat(process, thread).state};
  const std::string call = first_line(folder + "syscall");
  char* rest = nullptr;
  const long number = std::strtol(call.c_str(), &rest, 10);
  if (rest != call.c_str() && number >= 0) sight.call = name_of_call(number);
  sight.channel = first_line(folder + "wchan");
  if (sight.channel == "0") sight.channel.clear();
  return sight;
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

std::vector<ThreadSight> threads_of(pid_t process) {
  std::vector<ThreadSight> threads = {sight_of(process, process, "main")};
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(str_cat("/proc/", process, "/task"), gone)) {
    const std::string name = first_line((entry.path() / "comm").string());
    if (!name.starts_with(kThreadPrefix)) continue;
    const std::string own = name.substr(kThreadPrefix.size());
    if (own == "signals" || own == "watch") continue;
    threads.push_back(sight_of(process, std::atoi(entry.path().filename().c_str()), own));
  }
  return threads;
}

std::string describe(const ThreadSight& sight) {
  return str_cat("state ", std::string(1, sight.state), sight.call.empty() ? "" : ", in " + sight.call,
                 sight.channel.empty() ? "" : ", at " + sight.channel);
}

StackSampler::StackSampler() {
  void* primer[4];
  backtrace(primer, 4);  // the first call loads a library, which a handler must not
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(signal_number(), &action, &before_);
}

StackSampler::~StackSampler() {
  // One that never answered may still do so.
  for (auto& request : unanswered_) {
    if (request->depth < 0) [[maybe_unused]]
      Request* left = request.release();
  }
  if (unanswered_.empty()) sigaction(signal_number(), &before_, nullptr);
}

// Async-signal-safe: `backtrace` has been primed, and glibc finds unwind tables without a lock.
void StackSampler::on_signal(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid()) return;  // anybody may send it
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
  constexpr int kHandlerFrames = 2, kShown = 14;  // of the handler and of the return from it
  for (int i = kHandlerFrames; i < request->depth && i < kHandlerFrames + kShown; ++i)
    text += str_cat(text.empty() ? "" : " < ", describe_frame(request->frames[static_cast<size_t>(i)]));
  return text;
}

std::string describe_threads(StackSampler& sampler) {
  std::string text;
  for (const ThreadSight& sight : threads_of(getpid())) {
    const std::string stack = sampler.stack_of(sight.thread, std::chrono::milliseconds(150));
    text += str_cat(text.empty() ? "" : "\n", sight.name, " thread: ", describe(sight),
                    stack.empty() ? "; it does not answer" : "; " + stack);
  }
  return text;
}

}  // namespace ashlar::watch
