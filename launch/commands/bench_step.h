#pragma once

#include <ostream>
#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare KEY=A,B] [--json]`: training
/// steps of a configuration on random tokens, no dataset needed: median step time, tokens a second, and share of this
/// machine's peak (measured between the steps), both ways of counting attention; what ranks exchange. With --compare
/// the same for each value of a key, step by step in turns. All ranks call it; it writes on rank 0. Throws Error.
int run_bench_step(std::span<const std::string> words, Session& session, std::ostream& out);

}  // namespace ashlar::launch
