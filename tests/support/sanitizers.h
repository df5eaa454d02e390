#pragma once

extern "C" void __asan_init() __attribute__((weak));

namespace ashlar::testing {

/// Whether this program is linked with the address sanitizer, which reserves addresses of its own and keeps what is
/// freed. The macro of the compiler does not tell: most tests are compiled plain (tests/CMakeLists.txt).
inline bool under_address_sanitizer() { return &__asan_init != nullptr; }

}  // namespace ashlar::testing
