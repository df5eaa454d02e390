#include "tests/evidence/occupancy.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/base/error.h"

namespace ashlar::evidence {

int resident_warps(const BlockNeeds& block) {
  const int warps = (block.threads + 31) / 32;
  const int registers_of_warp = (block.registers * 32 + 255) / 256 * 256;
  // A quarter of the registers belongs to each of the four schedulers, which share out a block's warps.
  const int warps_by_registers = registers_of_warp == 0 ? 64 : 4 * (16384 / registers_of_warp);
  const int64_t shared = (block.shared_bytes + 1024 + 127) / 128 * 128;
  const int64_t blocks =
      std::min({int64_t{warps_by_registers / warps}, 228 * 1024 / shared, int64_t{64 / warps}, int64_t{32}});
  return static_cast<int>(blocks) * warps;
}

std::map<std::string, CompiledKernel> compiled_kernels() {
  const std::string path = ASHLAR_SOURCE_DIR "/tests/ptx/resources.txt", target = "sm_90a  ";
  std::ifstream file(path);
  std::map<std::string, CompiledKernel> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    int64_t spilled = 0;
    CompiledKernel kernel;
    std::string name;
    words >> kernel.registers >> spilled >> kernel.shared_bytes >> std::ws;
    std::getline(words, name);
    if (name.starts_with(target)) all[name.substr(target.size())] = kernel;
  }
  ASHLAR_CHECK(!all.empty(), "[evidence] no kernels in ", path);
  return all;
}

}  // namespace ashlar::evidence
