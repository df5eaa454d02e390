#pragma once

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace ashlar::emulator {

// What the address sanitizer is told about memory that we hand out; nothing without it.

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
inline void allow_access(const void* at, int64_t bytes) {
  __asan_unpoison_memory_region(at, static_cast<size_t>(bytes));
}
inline void forbid_access(const void* at, int64_t bytes) {
  __asan_poison_memory_region(at, static_cast<size_t>(bytes));
}
#else
inline constexpr bool kSanitized = false;
inline void allow_access(const void* /*at*/, int64_t /*bytes*/) {}
inline void forbid_access(const void* /*at*/, int64_t /*bytes*/) {}
#endif

}  // namespace ashlar::emulator
