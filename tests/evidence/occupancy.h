#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace ashlar::evidence {

/// What a block takes of a multiprocessor.
struct BlockNeeds {
  int registers = 0;  ///< of a thread
  int threads = 0;
  int64_t shared_bytes = 0;  ///< static and dynamic
};

/// Warps that a multiprocessor of compute capability 9.0 holds at a time, of 64: blocks are limited by 65,536 registers
/// (given to warps 256 at a time), 228 KiB of shared memory (1 KiB a block is the system's), 2,048 threads and 32
/// blocks. Source: CUDA C++ Programming Guide 13, table "Technical Specifications per Compute Capability".
int resident_warps(const BlockNeeds& block);

/// Registers and static shared memory by kernel on sm_90a, from tests/ptx/resources.txt.
struct CompiledKernel {
  int registers = 0;
  int64_t shared_bytes = 0;
};
std::map<std::string, CompiledKernel> compiled_kernels();

}  // namespace ashlar::evidence
