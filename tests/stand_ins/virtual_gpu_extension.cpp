#include "tests/stand_ins/virtual_gpu_extension.h"

#include <cstddef>
#include <cstdint>
#include <map>

namespace ashlar::testing {

namespace {

emulator::VirtualGpu*& device() {
  static auto* const current = new emulator::VirtualGpu*(nullptr);
  return *current;
}

/// Blocks by what was handed out of them.
std::map<void*, void*>& aligned_blocks() {
  static auto* const blocks = new std::map<void*, void*>;
  return *blocks;
}

}  // namespace

void take_work_of_stand_ins(emulator::VirtualGpu& gpu) { device() = &gpu; }

extern "C" {

void ashlar_stand_in_enqueue(void* stream, bool (*step)(void*), void* data, const char* name) {
  device()->queue_step(
      name, [step, data] { return step(data); }, *static_cast<Stream*>(stream));
}

void ashlar_stand_in_touch(const void* at, size_t bytes, bool writes) {
  const auto size = static_cast<int64_t>(bytes);
  device()->touch({at, DType::kUInt8, 1, size, size}, writes);
}

void* ashlar_stand_in_allocate(size_t bytes, size_t alignment) {
  void* const block = device()->memory().allocate(static_cast<int64_t>(bytes + alignment));
  const auto at = (reinterpret_cast<uintptr_t>(block) + alignment - 1) / alignment * alignment;
  aligned_blocks()[reinterpret_cast<void*>(at)] = block;
  return reinterpret_cast<void*>(at);
}

void ashlar_stand_in_free(void* memory) {
  device()->memory().release(aligned_blocks().at(memory));
  aligned_blocks().erase(memory);
}
}

}  // namespace ashlar::testing
