#include "tests/gpu_emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "core/base/error.h"
#include "tests/gpu_emulator/sanitizer.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(ASHLAR_FIBER_UCONTEXT)
// switch(save, load): pushes what a called function must keep, stores the stack pointer at *save, continues at `load`.
// begin: where a new stack starts; its first switch put the fiber into r12 and the function to call into r13.
extern "C" void ashlar_fiber_switch(void** save, void* load);
extern "C" void ashlar_fiber_begin();
asm(R"(
.text
.globl ashlar_fiber_switch
.hidden ashlar_fiber_switch
.type ashlar_fiber_switch,@function
ashlar_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ashlar_fiber_switch,.-ashlar_fiber_switch
.globl ashlar_fiber_begin
.hidden ashlar_fiber_begin
.type ashlar_fiber_begin,@function
ashlar_fiber_begin:
  movq %r12, %rdi
  callq *%r13
  ud2
.size ashlar_fiber_begin,.-ashlar_fiber_begin
)");
#endif

namespace ashlar::emulator {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber(void (*entry)(void*), void* argument) : entry_(entry), argument_(argument) {
  const size_t guard = page_bytes();
  void* memory = mmap(nullptr, kStackBytes + guard, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw resource_error("emulator", "no address space for a stack of ", kStackBytes, " bytes");
  mprotect(memory, guard, PROT_NONE);
  stack_ = static_cast<char*>(memory) + guard;
  bottom_ = stack_;
  bytes_ = kStackBytes;
  restart();
}

Fiber::~Fiber() {
  if (stack_ == nullptr) return;
  allow_access(stack_, kStackBytes);
  munmap(static_cast<char*>(stack_) - page_bytes(), kStackBytes + page_bytes());
}

void Fiber::restart() {
  allow_access(stack_, kStackBytes);
  fake_stack_ = nullptr;
#if defined(ASHLAR_FIBER_UCONTEXT)
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::begin_halves), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(uint64_t{self} >> 32));
#else
  auto** top = reinterpret_cast<void**>(static_cast<char*>(stack_) + kStackBytes);
  *--top = nullptr;  // two words, so that the stack is aligned to 16 where `begin` calls
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&ashlar_fiber_begin);
  *--top = nullptr;                                 // rbp
  *--top = nullptr;                                 // rbx
  *--top = this;                                    // r12
  *--top = reinterpret_cast<void*>(&Fiber::begin);  // r13
  *--top = nullptr;                                 // r14
  *--top = nullptr;                                 // r15
  stack_pointer_ = top;
#endif
}

#if defined(ASHLAR_FIBER_UCONTEXT)
void Fiber::begin_halves(unsigned low, unsigned high) {
  begin(reinterpret_cast<void*>(static_cast<uintptr_t>(uint64_t{high} << 32 | low)));
}
#endif

void Fiber::begin(void* fiber) {
  auto* self = static_cast<Fiber*>(fiber);
  self->arrive();
  self->entry_(self->argument_);
  std::abort();  // an entry does not return
}

void Fiber::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (came_from_->bottom_ == nullptr) {  // the stack that ran before there were fibers
    came_from_->bottom_ = bottom;
    came_from_->bytes_ = bytes;
  }
#endif
}

void Fiber::switch_stacks(Fiber& from, Fiber& to, [[maybe_unused]] bool abandon) {
  to.came_from_ = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(abandon ? nullptr : &from.fake_stack_, to.bottom_, to.bytes_);
#endif
#if defined(ASHLAR_FIBER_UCONTEXT)
  swapcontext(&from.context_, &to.context_);
#else
  ashlar_fiber_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
  from.arrive();
}

void Fiber::leave_for_good(Fiber& from, Fiber& to) {
  switch_stacks(from, to, /*abandon=*/true);
  std::abort();  // nobody enters it again before restart()
}

}  // namespace ashlar::emulator
