#include "tests/support/deferred/guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "core/base/error.h"

namespace ashlar::testing {

namespace {

constexpr int64_t kAlign = 256;

// A handler is given nothing of ours, but the kernel tells it where its stack lies, and that is ours: what it needs
// stands at the stack's base.
struct StackBase {
  const GuardedRegion* region;
  struct sigaction before;
};
constexpr size_t kStackBytes = 1 << 20;

void on_fault(int /*signal*/, siginfo_t* info, void* context) {
  const auto* base = static_cast<const StackBase*>(static_cast<const ucontext_t*>(context)->uc_stack.ss_sp);
  if (base->region->holds(info->si_addr)) {
    // The fault is the program's own, at a known place: what allocates may be called.
    const std::string text =
        "[deferred] the host touches device memory " + base->region->describe(info->si_addr) + "\n";
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  }
  sigaction(SIGSEGV, &base->before, nullptr);  // the instruction faults again
}

}  // namespace

GuardedRegion::GuardedRegion(int64_t bytes, std::function<std::string(const void*)> describe)
    : bytes_(bytes), describe_(std::move(describe)) {
  base_ = static_cast<char*>(mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASHLAR_CHECK(base_ != MAP_FAILED && stack_ != MAP_FAILED, "no address space of ", bytes, " bytes");
  auto* const base = new (stack_) StackBase{.region = this, .before = {}};
  stack_t stack{};
  stack.ss_sp = stack_;
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &base->before);
}

GuardedRegion::~GuardedRegion() {
  sigaction(SIGSEGV, &static_cast<StackBase*>(stack_)->before, nullptr);
  sigaltstack(&stack_before_, nullptr);
  munmap(stack_, kStackBytes);
  munmap(base_, static_cast<size_t>(bytes_));
}

void GuardedRegion::open() {
  if (open_) return;
  mprotect(base_, static_cast<size_t>(high_water_), PROT_READ | PROT_WRITE);
  open_ = true;
}

void GuardedRegion::close() {
  if (!open_ || high_water_ == 0) return;
  mprotect(base_, static_cast<size_t>(high_water_), PROT_NONE);
  open_ = false;
}

void* GuardedRegion::allocate(int64_t bytes) {
  const int64_t size = (bytes + kAlign - 1) / kAlign * kAlign + kAlign;
  int64_t at = 0;
  for (const auto& [offset, taken] : taken_) {
    if (offset - at >= size) break;
    at = offset + taken;
  }
  ASHLAR_CHECK(at + size <= bytes_, "the region of ", bytes_, " bytes is full");
  taken_.emplace(at, size);
  used_ += size;
  if (at + size > high_water_) {
    // In whole pages: they are opened and closed together.
    const bool was_open = open_;
    open();
    high_water_ = (at + size + 4095) / 4096 * 4096;
    if (!was_open) close();
  }
  hash_ = (hash_ ^ static_cast<uint64_t>(at + 1)) * 0x9E3779B97F4A7C15ULL;
  return base_ + at;
}

void GuardedRegion::release(void* block) {
  const int64_t at = static_cast<char*>(block) - base_;
  const auto found = taken_.find(at);
  ASHLAR_CHECK(found != taken_.end(), "a block that was not handed out");
  used_ -= found->second;
  taken_.erase(found);
  hash_ = (hash_ ^ ~static_cast<uint64_t>(at)) * 0x9E3779B97F4A7C15ULL;
}

uint64_t GuardedRegion::take_hash() {
  const uint64_t hash = hash_;
  hash_ = 0;
  return hash;
}

void* GuardedAllocator::allocate(int64_t bytes) {
  void* const block = region_.allocate(bytes);
  blocks_.emplace(block, bytes);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return block;
}

void GuardedAllocator::release(void* block) {
  used_ -= blocks_.at(block);
  blocks_.erase(block);
  region_.release(block);
}

}  // namespace ashlar::testing
