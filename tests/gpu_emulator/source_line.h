#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/gpu_emulator/loc.h"

namespace ashlar::emulator {

/// Places in the code of kernels that touch memory, as small numbers: return addresses of watched accesses, and the
/// places of intrinsics.
class Sites {
 public:
  uint32_t of(const void* return_address) {
    Recent& recent = recent_[reinterpret_cast<uintptr_t>(return_address) % recent_.size()];
    if (recent.return_address != return_address) recent = {return_address, look_up(return_address)};
    return recent.site;
  }
  uint32_t of(Loc loc);
  /// `norm.cu:41`; where functions were inlined into one another, `vector.h:12 in norm.cu:41`. Return addresses are
  /// looked up in the line table of the program by addr2line; without it, or without -g, the address.
  const std::string& text(uint32_t site);

 private:
  struct Site {
    const void* return_address = nullptr;
    Loc loc;
    std::string text;  // as soon as somebody asked
  };
  struct Recent {
    const void* return_address = nullptr;
    uint32_t site = 0;
  };
  uint32_t look_up(const void* return_address);

  std::array<Recent, 1021> recent_;
  std::vector<Site> sites_;
  std::unordered_map<const void*, uint32_t> by_address_;
  std::unordered_map<const char*, std::unordered_map<int, uint32_t>> by_loc_;
};

}  // namespace ashlar::emulator
