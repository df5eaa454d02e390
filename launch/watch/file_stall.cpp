#include "launch/watch/file_stall.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/strings.h"
#include "launch/watch/process.h"

namespace ashlar::watch {

namespace {

constexpr int kLooks = 2;           // number of checks within which a new thread must have set its name
constexpr int kExcused = 4;         // number of checks after a signal during which a thread may be in its handler
constexpr int64_t kAwakeMs = 2000;  // a process without a heartbeat for this long may be stopped

void close_files(int first, int second) {
  for (const int fd : {first, second})
    if (fd >= 0) close(fd);
}

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  const size_t size = std::min(text.size(), N - 1);
  to.fill('\0');
  text.copy(to.data(), size, text.size() - size);
}

}  // namespace

FileStallWatch::FileStallWatch() : tasks_(opendir("/proc/self/task")) {}

FileStallWatch::~FileStallWatch() {
  for (const auto& [id, thread] : threads_) close_files(thread.syscall, thread.bytes);
  if (tasks_ != nullptr) closedir(tasks_);
}

void FileStallWatch::begin(pid_t id, Thread& thread) const {
  if (!thread.name.empty() || thread.looks == kLooks) return;
  ++thread.looks;
  thread.name = own_name(getpid(), id);
  if (thread.name.empty()) return;
  thread.looks = kLooks;
  const std::string folder = str_cat("/proc/self/task/", id, "/");
  thread.syscall = open((folder + "syscall").c_str(), O_RDONLY | O_CLOEXEC);
  thread.bytes = open((folder + "io").c_str(), O_RDONLY | O_CLOEXEC);
}

void FileStallWatch::list() {
  // The link count of /proc/self/task changes with the number of threads. Reading the count opens no file.
  struct stat folder {};
  if (tasks_ == nullptr || fstat(dirfd(tasks_), &folder) != 0) return;
  const bool settled = std::ranges::all_of(threads_, [](const auto& known) { return known.second.looks == kLooks; });
  if (settled && folder.st_nlink == links_) return;
  links_ = folder.st_nlink;
  for (auto& [id, thread] : threads_) thread.seen = false;
  rewinddir(tasks_);
  while (const dirent* entry = readdir(tasks_)) {
    const pid_t id = std::atoi(entry->d_name);
    if (id == 0) continue;  // the entries "." and ".."
    Thread& thread = threads_[id];
    thread.seen = true;
    begin(id, thread);
  }
  std::erase_if(threads_, [](const auto& known) {
    if (!known.second.seen) close_files(known.second.syscall, known.second.bytes);
    return !known.second.seen;
  });
}

const FileStall& FileStallWatch::look(int64_t now_ms, int64_t every_ms) {
  list();
  if (now_ms - looked_ms_ < every_ms) return longest_;
  looked_ms_ = now_ms;
  longest_ = {};
  for (auto& [id, thread] : threads_) {
    const std::string line = text_in(thread.syscall);
    SystemCall in = call_of(getpid(), line);
    std::string in_call = in.file.empty() ? "" : line + in.file, moved = text_in(thread.bytes);
    const bool excused = thread.excused > 0 && !thread.in_call.empty();
    if (thread.excused > 0) --thread.excused;
    if (!excused || !in_call.empty()) {
      const bool back = excused && in_call == thread.in_call;
      if (back) thread.excused = 0;
      if (in_call.empty() || in_call != thread.in_call || (moved != thread.moved && !back)) thread.since_ms = now_ms;
      thread.call = std::move(in);
      thread.in_call = std::move(in_call);
      thread.moved = std::move(moved);
    }
    if (now_ms - thread.since_ms < 2 * every_ms) continue;
    if (longest_.since_ms != 0 && longest_.since_ms <= thread.since_ms) continue;
    longest_.since_ms = thread.since_ms;
    put(longest_.thread, thread.name);
    put(longest_.call, thread.call.call);
    put(longest_.file, thread.call.file);
  }
  return longest_;
}

void FileStallWatch::interrupted() {
  for (auto& [id, thread] : threads_) thread.excused = kExcused;
}

const FileStall* stall_of(const RankPage& page, int64_t now_ms) {
  const bool stalls =
      takes_part(page) && look_at(page.stall.since_ms) != 0 && now_ms - look_at(page.heartbeat_ms) < kAwakeMs;
  return stalls ? &page.stall : nullptr;
}

std::string describe_stall(const FileStall& stall, int64_t now_ms) {
  return str_cat("its ", stall.thread.data(), " thread is in ", stall.call.data(), " of ", stall.file.data(), " for ",
                 (now_ms - look_at(stall.since_ms)) / 1000, " s");
}

std::string describe_stalls(std::span<const RankPage> pages, int64_t now_ms, int64_t longer_ms) {
  const RankPage* longest = nullptr;
  int64_t count = 0;
  for (const RankPage& page : pages) {
    const FileStall* stall = stall_of(page, now_ms);
    if (stall == nullptr || now_ms - look_at(stall->since_ms) < longer_ms) continue;
    ++count;
    if (longest == nullptr || stall->since_ms < longest->stall.since_ms) longest = &page;
  }
  if (longest == nullptr) return "";
  return str_cat("[rank ", longest->rank, " of ", longest->ranks, " on ", longest->host.data(), "] ",
                 describe_stall(longest->stall, now_ms),
                 count == 1 ? "" : str_cat("; ", count - 1, " more on this machine wait too"));
}

}  // namespace ashlar::watch
