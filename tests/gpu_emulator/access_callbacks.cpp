// The functions that `-fsanitize=thread` calls at each access to memory, so that kernels compiled with it run under our
// MemoryWatch. The sanitizer's own library is not linked. They do nothing outside of kernels.
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {
namespace {

using Kind = MemoryWatch::Kind;
using Width = MemoryWatch::Width;

void watch(const void* address, int64_t bytes, Kind kind, Width width, const void* return_address) {
  Block* const block = internal::current_block;
  if (block == nullptr || block->stack_contains(address)) return;
  block->watched_access({.address = address, .bytes = bytes, .kind = kind, .width = width}, return_address);
}

}  // namespace
}  // namespace ashlar::emulator

using ashlar::emulator::Kind;
using ashlar::emulator::Width;

#define ASHLAR_CALLBACK(name, bytes, kind, width) \
  void name(void* address) { ashlar::emulator::watch(address, bytes, kind, width, __builtin_return_address(0)); }
#define ASHLAR_CALLBACKS(bytes)                                                             \
  ASHLAR_CALLBACK(__tsan_read##bytes, bytes, Kind::kRead, Width::kWhole)                    \
  ASHLAR_CALLBACK(__tsan_write##bytes, bytes, Kind::kWrite, Width::kWhole)                  \
  ASHLAR_CALLBACK(__tsan_volatile_read##bytes, bytes, Kind::kRead, Width::kWhole)           \
  ASHLAR_CALLBACK(__tsan_volatile_write##bytes, bytes, Kind::kWrite, Width::kWhole)         \
  ASHLAR_CALLBACK(__tsan_unaligned_read##bytes, bytes, Kind::kRead, Width::kParts)          \
  ASHLAR_CALLBACK(__tsan_unaligned_write##bytes, bytes, Kind::kWrite, Width::kParts)        \
  ASHLAR_CALLBACK(__tsan_unaligned_volatile_read##bytes, bytes, Kind::kRead, Width::kParts) \
  ASHLAR_CALLBACK(__tsan_unaligned_volatile_write##bytes, bytes, Kind::kWrite, Width::kParts)

extern "C" {
ASHLAR_CALLBACKS(1)
ASHLAR_CALLBACKS(2)
ASHLAR_CALLBACKS(4)
ASHLAR_CALLBACKS(8)
ASHLAR_CALLBACKS(16)

void __tsan_read_range(void* address, unsigned long bytes) {
  ashlar::emulator::watch(address, static_cast<int64_t>(bytes), Kind::kRead, Width::kParts,
                          __builtin_return_address(0));
}
void __tsan_write_range(void* address, unsigned long bytes) {
  ashlar::emulator::watch(address, static_cast<int64_t>(bytes), Kind::kWrite, Width::kParts,
                          __builtin_return_address(0));
}

/// Of launchers, which count owners: an atomic operation of a kernel is a call of the emulator.
int __tsan_atomic32_fetch_add(volatile int* address, int value, int /*order*/) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** /*vptr*/, void* /*value*/) {}
void __tsan_vptr_read(void** /*vptr*/) {}
}  // extern "C"
