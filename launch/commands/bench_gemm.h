#pragma once

#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// `ashlar bench gemm [--json] [--device NAME] [--threads N] [--shapes gpt2|char|all]
/// [--dtype fp32|bf16|fp64|all] [--seconds S]`: the three products of the linear layers of GPT-2 124M (B=4 T=256) and
/// of the character model, each with its time, GFLOP/s and percent of the peak measured in the same run (of the FMA or
/// bf16 dot-product unit; on a GPU of a large square product). If a device has a choice of algorithms, the fastest are
/// measured first. `--json` writes one object instead of the table. Returns the exit code; throws
/// input_error for bad options.
int run_bench_gemm(std::span<const std::string> args, std::ostream& out);

}  // namespace ashlar::launch
