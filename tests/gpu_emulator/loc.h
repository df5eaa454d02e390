#pragma once

#include <string>

namespace ashlar::emulator {

/// A place in a source file. As the default of a last parameter it is the place of the call:
///   void __syncthreads(Loc loc = Loc::here());
struct Loc {
  const char* file = nullptr;
  int line = 0;

  static constexpr Loc here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

  bool operator==(const Loc& other) const;
  std::string text() const;  ///< `norm.cu:41`
};

}  // namespace ashlar::emulator
