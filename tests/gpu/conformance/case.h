#pragma once

#include <cstdint>

/// Small kernels that go once through every instruction, conversion and function that kernels may use (dev/ptx.h,
/// dev/vector.h, dev/reduce.h, dev/math.h and CUDA's own), with random operands. One source runs on the emulator, as
/// PTX in the interpreter, and on a GPU; all must write the same words.
namespace ashlar::conformance {

inline constexpr int kBlocks = 2, kThreads = 128;  // of every launch

/// in [threads, words_in], out [threads, words_out]; a thread of the grid reads and writes its row, or its block's
/// rows.
using Kernel = void (*)(const uint32_t* in, uint32_t* out);

/// What random words a case gets.
enum class Inputs : uint8_t {
  kBits,     ///< any
  kFloats,   ///< fp32: half of them 2^-20 to 2^20, the others any bits; zeros, infinities, NaN, subnormals among them
  kDoubles,  ///< the same of fp64, two words each
  kUnit,     ///< fp32 of -4 to 4
};

struct Case {
  const char* name;
  Kernel kernel;
  Inputs inputs;
  int words_in, words_out;  // of a thread
  int shared_bytes = 0;     // dynamic shared memory
  /// 0: same words. Else outputs are fp32 of instructions that are approximate, or that round in an order of their own:
  /// a GPU's may differ from the emulator's by so much, relative to the larger of the result and `size`.
  double allowed = 0, size = 0;
};

}  // namespace ashlar::conformance
