#include "tests/gpu_emulator/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "tests/gpu_emulator/sanitizer.h"

namespace ashlar::emulator {
namespace {

constexpr int64_t kGap = 64;

}  // namespace

SharedMemory::SharedMemory() {
  void* memory = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw resource_error("emulator", "no memory for shared memory: ", kArenaBytes, " bytes");
  base_ = static_cast<char*>(memory);
}

SharedMemory::~SharedMemory() {
  allow_access(base_, kArenaBytes);
  munmap(base_, kArenaBytes);
}

void SharedMemory::begin_block(int64_t dynamic_bytes) {
  variables_.clear();
  static_bytes_ = 0;
  used_ = 1024;  // address 0 is nobody's, as on the GPU
  forbid_access(base_, kArenaBytes);
  dynamic_ = dynamic_bytes == 0 ? Variable{} : carve(nullptr, dynamic_bytes, kDynamicAlign);
}

void SharedMemory::end_block() { allow_access(base_, kArenaBytes); }

SharedMemory::Variable SharedMemory::carve(const void* key, int64_t bytes, int64_t align) {
  // An odd multiple of the alignment, so that code which counts on more goes wrong. The address sanitizer knows borders
  // of 8 bytes.
  const int64_t step = std::max<int64_t>(align, 8);
  int64_t begin = (used_ + kGap + step - 1) / step * step;
  if (begin / step % 2 == 0) begin += step;
  used_ = begin + bytes;
  ASHLAR_CHECK(used_ <= kArenaBytes, used_, " bytes");
  allow_access(base_ + begin, bytes);
  std::memset(base_ + begin, 0xff, bytes);
  return {.key = key, .begin = begin, .bytes = bytes};
}

void* SharedMemory::find(const void* key) const {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return base_ + variable.begin;
  }
  return nullptr;
}

void* SharedMemory::add(const void* key, int64_t bytes, int64_t align) {
  static_bytes_ += bytes;
  if (static_bytes_ > kMaxStaticBytes || static_bytes_ + dynamic_.bytes > kMaxBytes) return nullptr;
  variables_.push_back(carve(key, bytes, align));
  return base_ + variables_.back().begin;
}

bool SharedMemory::allocated(uint32_t address, int64_t bytes) const {
  const auto within = [&](const Variable& v) { return address >= v.begin && address + bytes <= v.begin + v.bytes; };
  return within(dynamic_) || std::any_of(variables_.begin(), variables_.end(), within);
}

std::string SharedMemory::describe(uint32_t address) const {
  const Variable* below = dynamic_.bytes > 0 && dynamic_.begin <= address ? &dynamic_ : nullptr;
  for (const Variable& variable : variables_) {
    if (variable.begin <= address && (below == nullptr || variable.begin > below->begin)) below = &variable;
  }
  if (below == nullptr) return "before all variables";
  const char* const kind = below == &dynamic_ ? "the dynamic memory" : "a variable";
  const int64_t offset = address - below->begin;
  if (offset < below->bytes) return str_cat("from byte ", offset, " of ", kind, " of ", below->bytes, " bytes on");
  return str_cat(offset - below->bytes, " bytes past the end of ", kind, " of ", below->bytes, " bytes");
}

}  // namespace ashlar::emulator
