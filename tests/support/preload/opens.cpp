// Preloaded into the program under test: counts the files that each rank of Open MPI opens, by whatever call of the C
// library. OPENS_IN is a folder: rank R keeps two counters of 64 bits in its file R, to be read at any time: what the
// MPI library and its own libraries opened, and all else. OPENS_NAMES=1 says each on standard error.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Counters {
  std::atomic<int64_t> of_mpi, others;
};

// By system calls: nothing of this is counted. Null where nobody asked, and in processes that are no rank.
Counters* counters() {
  static Counters* const kept = [] {
    const char *folder = std::getenv("OPENS_IN"), *rank = std::getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    if (folder == nullptr || rank == nullptr) return static_cast<Counters*>(nullptr);
    if (std::snprintf(path, sizeof(path), "%s/%s", folder, rank) >= static_cast<int>(sizeof(path))) std::abort();
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (fd < 0 || ftruncate(fd, sizeof(Counters)) != 0) std::abort();
    void* page = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) std::abort();
    syscall(SYS_close, fd);
    return static_cast<Counters*>(page);
  }();
  return kept;
}

// `caller`: an address in the library that called.
void count(const char* path, const void* caller) {
  Counters* c = counters();
  if (c == nullptr) return;
  Dl_info library{};
  const char* name = dladdr(caller, &library) != 0 && library.dli_fname != nullptr ? library.dli_fname : "?";
  bool of_mpi = false;
  for (const char* part :
       {"libmpi", "libopen-", "mca_", "pmix", "libhwloc", "libevent", "libucp", "libuct", "libfabric"})
    of_mpi = of_mpi || std::strstr(name, part) != nullptr;
  ++(of_mpi ? c->of_mpi : c->others);
  if (std::getenv("OPENS_NAMES") != nullptr) std::fprintf(stderr, "opens %s, called by %s\n", path, name);
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// The third argument of open, which is there when a file may be made.
#define MODE_OF(flags)                                              \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list list;                                                   \
    va_start(list, flags);                                          \
    mode = va_arg(list, mode_t);                                    \
    va_end(list);                                                   \
  }                                                                 \
  static_assert(true)

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  MODE_OF(flags);
  count(path, __builtin_return_address(0));
  return next<int (*)(const char*, int, mode_t)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE_OF(flags);
  count(path, __builtin_return_address(0));
  return next<int (*)(const char*, int, mode_t)>("open64")(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE_OF(flags);
  count(path, __builtin_return_address(0));
  return next<int (*)(int, const char*, int, mode_t)>("openat")(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE_OF(flags);
  count(path, __builtin_return_address(0));
  return next<int (*)(int, const char*, int, mode_t)>("openat64")(folder, path, flags, mode);
}
int __open_2(const char* path, int flags) {
  count(path, __builtin_return_address(0));
  return next<int (*)(const char*, int)>("__open_2")(path, flags);
}
int __open64_2(const char* path, int flags) {
  count(path, __builtin_return_address(0));
  return next<int (*)(const char*, int)>("__open64_2")(path, flags);
}
FILE* fopen(const char* path, const char* mode) {
  count(path, __builtin_return_address(0));
  return next<FILE* (*)(const char*, const char*)>("fopen")(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  count(path, __builtin_return_address(0));
  return next<FILE* (*)(const char*, const char*)>("fopen64")(path, mode);
}
DIR* opendir(const char* path) {
  count(path, __builtin_return_address(0));
  return next<DIR* (*)(const char*)>("opendir")(path);
}
int shm_open(const char* path, int flags, mode_t mode) {
  count(path, __builtin_return_address(0));
  return next<int (*)(const char*, int, mode_t)>("shm_open")(path, flags, mode);
}

}  // extern "C"
