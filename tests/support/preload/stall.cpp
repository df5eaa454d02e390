// Preloaded into the program under test: calls on files whose path contains STALL_PATH behave as a file system that
// hangs. STALL_DO = "sleep:SECONDS" waits in the kernel, in a call on the file; "stop" stops the process (SIGSTOP),
// "nolock" answers flock with ENOLCK, "lie" grants flock to everybody,
// "nospace" answers a write with ENOSPC, "fail" answers a sync with EIO. STALL_END: the path must end with STALL_PATH.
// STALL_CALL: read, write, sync or lock. STALL_RANK: on that rank of Open MPI only. STALL_THREAD: in the thread of that
// name only. STALL_MIN: calls of at least so many bytes. STALL_SKIP: so many of them pass first. STALL_ONCE: a file
// that is made at the first one, after which all pass.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

bool meant(int fd, const char* call, size_t size) {
  const char *path = std::getenv("STALL_PATH"), *which = std::getenv("STALL_CALL"), *rank = std::getenv("STALL_RANK"),
             *own = std::getenv("OMPI_COMM_WORLD_RANK");
  if (path == nullptr || which == nullptr || std::strcmp(which, call) != 0) return false;
  if (rank != nullptr && (own == nullptr || std::strcmp(rank, own) != 0)) return false;
  const char *least = std::getenv("STALL_MIN"), *thread = std::getenv("STALL_THREAD");
  if (least != nullptr && size < static_cast<size_t>(std::atoll(least))) return false;
  char own_name[32] = "";
  if (thread != nullptr && (prctl(PR_GET_NAME, own_name) != 0 || std::strcmp(own_name, thread) != 0)) return false;
  char link[64], name[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, name, sizeof(name) - 1);
  if (length <= 0) return false;
  name[length] = '\0';
  const size_t wanted = std::strlen(path), got = static_cast<size_t>(length);
  if (std::getenv("STALL_END") != nullptr) return got >= wanted && std::strcmp(name + got - wanted, path) == 0;
  return std::strstr(name, path) != nullptr;
}

// Waits for a lock of the file that a thread holds for so long.
void wait_on(int fd, int seconds) {
  const int flags = fcntl(fd, F_GETFL);
  char link[64];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const int other = open(link, O_RDWR | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (other < 0) return std::this_thread::sleep_for(std::chrono::seconds(seconds));  // a directory has no such locks
  if (fcntl(other, F_OFD_SETLK, &lock) != 0) {
    close(other);  // another call has made it hang already
  } else {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    std::thread([other, seconds] {
      pthread_setname_np(pthread_self(), "stall");
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      close(other);
    }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  lock.l_type = (flags & O_ACCMODE) == O_RDONLY ? F_RDLCK : F_WRLCK;
  while (fcntl(fd, F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
  }
  lock.l_type = F_UNLCK;
  fcntl(fd, F_OFD_SETLK, &lock);
}

// True when the call is to fail.
bool stall(int fd, const char* call, size_t size = 0) {
  if (!meant(fd, call, size)) return false;
  const char *what = std::getenv("STALL_DO"), *once = std::getenv("STALL_ONCE"), *skip = std::getenv("STALL_SKIP");
  if (what == nullptr) return false;
  static std::atomic<int>* const passed = new std::atomic<int>(0);  // as long as the process
  if (skip != nullptr && passed->fetch_add(1) < std::atoi(skip)) return false;
  if (once != nullptr) {
    const int made = open(once, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (made < 0) return false;
    close(made);
  }
  for (const char* answer : {"nolock", "lie", "nospace", "fail"})
    if (std::strcmp(what, answer) == 0) return true;
  if (std::strcmp(what, "stop") == 0) raise(SIGSTOP);
  if (std::strncmp(what, "sleep:", 6) == 0) wait_on(fd, std::atoi(what + 6));
  return false;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* to, size_t size) {
  stall(fd, "read", size);
  return next<ssize_t (*)(int, void*, size_t)>("read")(fd, to, size);
}
ssize_t pread(int fd, void* to, size_t size, off_t at) {
  stall(fd, "read", size);
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, to, size, at);
}
ssize_t pread64(int fd, void* to, size_t size, off64_t at) {
  stall(fd, "read", size);
  return next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64")(fd, to, size, at);
}
ssize_t write(int fd, const void* from, size_t size) {
  if (stall(fd, "write", size)) {
    errno = ENOSPC;
    return -1;
  }
  return next<ssize_t (*)(int, const void*, size_t)>("write")(fd, from, size);
}
ssize_t pwrite(int fd, const void* from, size_t size, off_t at) {
  stall(fd, "write", size);
  return next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void* from, size_t size, off64_t at) {
  stall(fd, "write", size);
  return next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64")(fd, from, size, at);
}
int fsync(int fd) {
  if (stall(fd, "sync")) {
    errno = EIO;
    return -1;
  }
  return next<int (*)(int)>("fsync")(fd);
}
int flock(int fd, int operation) {
  if (stall(fd, "lock")) {
    errno = ENOLCK;
    return std::strcmp(std::getenv("STALL_DO"), "lie") == 0 ? 0 : -1;
  }
  return next<int (*)(int, int)>("flock")(fd, operation);
}

}  // extern "C"
