#include "tests/gpu_emulator/device_calls.h"

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {

namespace internal {
thread_local constinit Block* current_block = nullptr;
}  // namespace internal

Block& current_block() {
  if (internal::current_block == nullptr) throw Bug("an intrinsic of kernels was called outside of a kernel");
  return *internal::current_block;
}

void fault(const char* text, Loc loc) { current_block().fault(text, loc); }

uint3 thread_index() { return current_block().thread_index(); }
uint3 block_index() { return current_block().block_index(); }
dim3 block_extent() { return current_block().grid().block; }
dim3 grid_extent() { return current_block().grid().grid; }
int lane_index() { return current_block().lane(); }

int sync_threads(Vote vote, int value, Loc loc) { return current_block().sync_threads(vote, value, loc); }
void named_barrier_sync(int id, int threads, Loc loc) { current_block().named_barrier(id, threads, true, loc); }
void named_barrier_arrive(int id, int threads, Loc loc) { current_block().named_barrier(id, threads, false, loc); }

void warp_call(const WarpCall& call, Loc loc) { current_block().warp_call(call, loc); }

void* static_shared(const void* key, int64_t bytes, int64_t align, Loc loc) {
  return current_block().static_shared(key, bytes, align, loc);
}
void* dynamic_shared(Loc loc) { return current_block().dynamic_shared(loc); }

uint32_t shared_address(const void* pointer, Loc loc) {
  Block& block = current_block();
  if (!block.shared().contains(pointer)) block.fault("this pointer is not one to shared memory", loc);
  return block.shared().address(pointer);
}

void* Block::static_shared(const void* key, int64_t bytes, int64_t align, Loc loc) {
  if (void* const made = shared_.find(key)) return made;
  void* const made = shared_.add(key, bytes, align);
  if (made == nullptr) {
    fault(str_cat("too much shared memory: ", shared_.static_bytes(), " bytes of static variables (at most ",
                  SharedMemory::kMaxStaticBytes, ") beside ", shared_.dynamic_bytes(),
                  " dynamic ones (together at most ", SharedMemory::kMaxBytes, ")"),
          loc);
  }
  return made;
}

void* Block::dynamic_shared(Loc loc) {
  if (shared_.dynamic() == nullptr) fault("dynamic shared memory in a launch with shared_bytes = 0", loc);
  return shared_.dynamic();
}

char* Block::shared_pointer(uint32_t address, int64_t bytes, int64_t align, Loc loc) {
  if (address % align != 0) {
    fault(str_cat("misaligned shared address ", address, " of ", bytes, " bytes: expected a multiple of ", align), loc);
  }
  if (!shared_.allocated(address, bytes)) {
    fault(str_cat("out of bounds: ", bytes, " bytes at shared address ", address, " are not within one variable"), loc);
  }
  return shared_.pointer(address);
}

void cp_async(const AsyncCopy& copy, Loc loc) { current_block().cp_async(copy, loc); }
void cp_async_commit_group() { current_block().cp_async_commit_group(); }
void cp_async_wait_group(int pending, Loc loc) { current_block().cp_async_wait(pending, false, loc); }
void cp_async_wait_all(Loc loc) { current_block().cp_async_wait(0, true, loc); }

void mbarrier_init(uint32_t address, int arrivals, Loc loc) { current_block().mbarrier_init(address, arrivals, loc); }
void mbarrier_arrive(uint32_t address, Loc loc) { current_block().mbarrier_arrive(address, 1, 0, loc); }
void mbarrier_arrive_expect_tx(uint32_t address, int bytes, Loc loc) {
  current_block().mbarrier_arrive(address, 1, bytes, loc);
}
void mbarrier_complete_tx(uint32_t address, int bytes, Loc loc) {
  current_block().mbarrier_arrive(address, 0, -bytes, loc);
}
void mbarrier_wait_parity(uint32_t address, int parity, Loc loc) {
  current_block().mbarrier_wait(address, parity, loc);
}

}  // namespace ashlar::emulator
