#pragma once

#include <ostream>
#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]`: the cost of checkpoints.
/// Runs N training steps on random tokens with a save every few steps, as a trainer does, and N steps without, in
/// alternating turns, so that both see the same state of the machine. Prints the loop time of a step with a save
/// relative to the median of the others, and the time of all steps with saves relative to those without. Loop time is
/// the whole time from one step to the next. If a save is unfinished when the next one is due, its remaining time
/// counts for the step that began it.
///   DIR must be new or empty; the files written there are removed. All ranks call it; rank 0 prints. Throws Error.
int run_bench_save(std::span<const std::string> words, Session& session, std::ostream& out);

}  // namespace ashlar::launch
