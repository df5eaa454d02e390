#include <memory>

#include "tests/gpu_emulator/device_memory.h"
#include "tests/support/test_memory.h"

namespace ashlar::test {

namespace {

// Memory that both sides may use, as CUDA's managed memory.
emulator::DeviceMemory& test_memory() {
  static const auto memory =
      std::make_unique<emulator::DeviceMemory>(emulator::DeviceMemory::Options{.owner = "test memory"});
  return *memory;
}

}  // namespace

void* allocate_test_memory(int64_t bytes) { return test_memory().allocate(bytes); }
void release_test_memory(void* block, int64_t /*bytes*/) { test_memory().release(block); }

}  // namespace ashlar::test
