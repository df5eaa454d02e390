#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(ASHLAR_FIBER_UCONTEXT)
#define ASHLAR_FIBER_UCONTEXT 1
#endif
#if defined(ASHLAR_FIBER_UCONTEXT)
#include <ucontext.h>
#endif

namespace ashlar::emulator {

/// A stack that code can be left and entered again on. Sixteen instructions a switch on x86-64, ucontext (ten times
/// slower) elsewhere; the address sanitizer is told of each.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 256 * 1024;  ///< of address space: memory where it is touched

  /// The stack that already runs.
  Fiber() = default;
  /// A new stack below a page that nobody may touch; the first switch to it calls entry(argument), which never returns.
  Fiber(void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Drops whatever stands on the stack, without destructors: the next switch to it calls the entry again.
  void restart();

  /// Leaves `from`, which runs, and goes on in `to`. Returns when somebody switches back to `from`.
  static void switch_to(Fiber& from, Fiber& to) { switch_stacks(from, to, /*abandon=*/false); }
  /// The same for a `from` that is restarted before it is entered again.
  [[noreturn]] static void leave_for_good(Fiber& from, Fiber& to);

  /// The lowest address of the stack; null for the one that ran before there were fibers.
  const char* stack() const { return static_cast<const char*>(stack_); }

 private:
  static void switch_stacks(Fiber& from, Fiber& to, bool abandon);
  static void begin(void* fiber);
  void arrive();

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* stack_ = nullptr;  // lowest address
#if defined(ASHLAR_FIBER_UCONTEXT)
  ucontext_t context_{};
  static void begin_halves(unsigned low, unsigned high);
#else
  void* stack_pointer_ = nullptr;
#endif
  // For the address sanitizer: where the stack lies, what it keeps of the frames, who came here last.
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
  Fiber* came_from_ = nullptr;
};

}  // namespace ashlar::emulator
