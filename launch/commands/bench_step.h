#pragma once

#include <ostream>
#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare KEY=A,B] [--json]`: training
/// steps of a configuration on random tokens, without a dataset: median step time, tokens per second, share of this
/// machine's peak (measured between the steps) with both ways of counting attention, and communication. With --compare
/// the same for each value of a key, in alternating steps. All ranks call it; rank 0 prints. Throws Error.
int run_bench_step(std::span<const std::string> words, Session& session, std::ostream& out);

}  // namespace ashlar::launch
