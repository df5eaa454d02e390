#pragma once

#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar bench kernels [--device cpu|cuda] [--threads N] [--dtype fp32|bf16|fp64|all] [--shapes
/// gpt2|char|all] [--isa baseline|avx2|avx512] [--only NAME] [--seconds S] [--json]`: every kernel that is neither a
/// matrix product nor attention, at the sizes of GPT-2 124M (N=1024, C=768, F=3072, V=50304; a flat buffer of a quarter
/// of its parameters for the optimizer) and of the character model (N=768, C=128, F=512, V=65; 0.8M parameters). Each
/// line: median time, GB/s over the bytes that the contract must read and write, and percent of the memory bandwidth
/// measured in the same run (the best of read, copy, triad and update in place, on arrays beyond every cache; of a
/// device the copy kernel's). Tensors that stay in a cache from one call to the next exceed 100%. `--json` writes one
/// object instead of the table. Returns the exit code; throws input_error for bad options.
int run_bench_kernels(std::span<const std::string> args, std::ostream& out);

}  // namespace ashlar::launch
