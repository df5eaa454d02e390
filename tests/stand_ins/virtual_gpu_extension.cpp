#include "tests/stand_ins/virtual_gpu_extension.h"

#include <cstddef>

namespace ashlar::testing {

namespace {

emulator::VirtualGpu*& device() {
  static auto* const current = new emulator::VirtualGpu*(nullptr);
  return *current;
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
}

}  // namespace ashlar::testing
