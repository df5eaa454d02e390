#pragma once

#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar bench attention [--threads N] [--dtype fp32|bf16|fp64|all] [--isa baseline|avx2|avx512] [--dropout P]
/// [--seconds S]`: causal attention at the shapes of GPT-2 124M (B=4 T=256 and T=1024) and of the character model,
/// forward and backward, each with its time, GFLOP/s and percent of the FMA peak measured in the same run. bf16 is a
/// storage type here: arithmetic, and so the peak, is fp32. Flops count only visible (query, key) pairs: 4 D per pair
/// forward, 10 D backward (including the recomputed scores). Returns the exit code; throws input_error for bad options.
int run_bench_attention(std::span<const std::string> args, std::ostream& out);

}  // namespace ashlar::launch
