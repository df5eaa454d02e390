#include "core/io/writer_thread.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

namespace ashlar::io {

size_t write_some(int fd, std::string_view text) {
  while (true) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n > 0) return static_cast<size_t>(n);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // another process that shares the descriptor has made it non-blocking
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (n == 0) errno = ENOSPC;
    return 0;
  }
}

void start_writer(const char* name, std::function<void()> work) {
  /// Blocks all signals while the thread is created, since a new thread inherits the signal mask of its creator.
  struct NoSignals {
    NoSignals() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before{};
  };
  const NoSignals none;
  std::thread([name, work = std::move(work)] {
    pthread_setname_np(pthread_self(), name);
    work();
  }).detach();
}

}  // namespace ashlar::io
