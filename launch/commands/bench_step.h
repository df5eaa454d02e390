#pragma once

#include <ostream>
#include <span>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// `ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--json]`: training steps of a
/// configuration on random tokens, no dataset needed: median step time, tokens a second, and share of this machine's
/// peak (measured between the steps), both ways of counting attention. Throws Error.
int run_bench_step(std::span<const std::string> words, comm::Bootstrap& bootstrap, std::ostream& out);

}  // namespace ashlar::launch
