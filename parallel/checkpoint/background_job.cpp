#include "parallel/checkpoint/background_job.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace ashlar::checkpoint {
namespace {

/// While an object of this class exists, the thread that constructed it blocks all signals except the signals that a
/// fault of the thread itself raises (SIGSEGV and others). A thread that it creates in that time starts with the same
/// signals blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Lowers the priority of this thread. When this thread competes with a compute thread for a core, it gets a third of
/// the CPU time that the compute thread gets. On Linux, setpriority with a thread id changes only that thread. An error
/// is ignored, since it only makes the program slower.
void give_way() {
  constexpr int kNicer = 5;
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, self);
  if (errno == 0) static_cast<void>(::setpriority(PRIO_PROCESS, self, now + kNicer));
}

}  // namespace

BackgroundJob::~BackgroundJob() {
  cancel();
  if (thread_.joinable()) thread_.join();
}

void BackgroundJob::start(Work work) {
  ASHLAR_CHECK(!started(), "a job was started before the earlier one was joined");
  ended_ = cancel_ = false;
  thrown_ = nullptr;
  const SignalsBlocked blocked;
  thread_ = std::thread([this, work = std::move(work)] {
    ::pthread_setname_np(::pthread_self(), thread_name_);
    give_way();
    try {
      work([this] { return cancel_.load(std::memory_order_relaxed); });
    } catch (...) {
      thrown_ = std::current_exception();
    }
    ended_.store(true, std::memory_order_release);
    ended_.notify_all();
  });
}

void BackgroundJob::join() {
  ASHLAR_CHECK(started(), "no job was started");
  thread_.join();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

}  // namespace ashlar::checkpoint
