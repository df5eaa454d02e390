// Preloaded into the program under test: calls on files whose path contains STALL_PATH behave as a file system that
// hangs. STALL_DO = "sleep:SECONDS" waits in the kernel, "stop" stops the process (SIGSTOP), "nolock" answers flock
// with ENOLCK, "fail" answers a sync with EIO. STALL_END: the path must end with STALL_PATH. STALL_CALL: read, write,
// sync or lock. STALL_RANK: on that rank of Open MPI only. STALL_THREAD: in the thread of that name only. STALL_MIN:
// calls of at least so many bytes. STALL_ONCE: a file that is made at the first one, after which all pass.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

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

// True when the call is to fail.
bool stall(int fd, const char* call, size_t size = 0) {
  if (!meant(fd, call, size)) return false;
  const char *what = std::getenv("STALL_DO"), *once = std::getenv("STALL_ONCE");
  if (what == nullptr) return false;
  if (once != nullptr) {
    const int made = open(once, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (made < 0) return false;
    close(made);
  }
  if (std::strcmp(what, "nolock") == 0 || std::strcmp(what, "fail") == 0) return true;
  if (std::strcmp(what, "stop") == 0) raise(SIGSTOP);
  if (std::strncmp(what, "sleep:", 6) == 0) {
    timespec left{.tv_sec = std::atoi(what + 6), .tv_nsec = 0};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
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
  stall(fd, "write", size);
  return next<ssize_t (*)(int, const void*, size_t)>("write")(fd, from, size);
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
    return -1;
  }
  return next<int (*)(int, int)>("flock")(fd, operation);
}

}  // extern "C"
