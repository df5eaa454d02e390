#include "launch/watch/fatal_signals.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "core/base/fixed_text.h"

namespace ashlar::watch {

namespace {

// A signal handler gets no argument from the program, and the project has no globals. But the kernel passes the address
// of the signal stack, which this file allocates. So the handler's data is stored at the base of that stack.
struct StackBase {
  static constexpr uint64_t kMark = 0x6873612d6c61746fULL;
  uint64_t mark = kMark;
  RankPage* page = nullptr;
};
constexpr size_t kStackBytes = 128 * 1024;  // a signal frame takes 4 KB with AVX-512, 11 KB with AMX

constexpr int kReaderPatienceMs = 500;  // longest wait for the reader of standard error

void raise_in_main_thread(int signal) { syscall(SYS_tgkill, getpid(), getpid(), signal); }

// Async-signal-safe: uses only system calls, arithmetic and existing memory.
void on_fatal(int signal, siginfo_t* /*info*/, void* context) {
  const stack_t& stack = static_cast<const ucontext_t*>(context)->uc_stack;
  const bool main_thread = syscall(SYS_gettid) == getpid();
  const auto* base = static_cast<const StackBase*>(stack.ss_sp);
  if (!main_thread) {  // only the main thread has the signal stack
    raise_in_main_thread(signal);
    while (true) pause();
  }
  struct sigaction otherwise {};
  otherwise.sa_handler = SIG_DFL;
  sigaction(signal, &otherwise, nullptr);
  if (base != nullptr && base->mark == StackBase::kMark) {
    char memory[512], line[600], name[32];
    const std::string_view what = FixedText(name).add("signal SIG").add(sigabbrev_np(signal)).text();
    const std::string_view text = describe(*base->page, what, memory);
    const std::string_view whole = FixedText(line).add("ashlar: ").add(text).add("\n").text();
    // The process must end even if nobody reads this pipe or terminal.
    pollfd reader{STDERR_FILENO, POLLOUT, 0};
    if (poll(&reader, 1, kReaderPatienceMs) == 1) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
    }
    std::atomic_ref<RankState>(base->page->state).store(RankState::kCrashed);
  }
  raise_in_main_thread(signal);  // arrives when this handler returns
}

}  // namespace

FatalSignals::FatalSignals(RankPage& page) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = memory;
  new (stack_) StackBase{.page = &page};
  stack_t stack{};
  stack.ss_sp = stack_;
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = on_fatal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

FatalSignals::~FatalSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
  munmap(stack_, kStackBytes);
}

}  // namespace ashlar::watch
