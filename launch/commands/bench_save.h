#pragma once

#include <ostream>
#include <span>
#include <string>

#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]`: what checkpoints cost a
/// run. N training steps on random tokens with a save every few, as a trainer saves, and N without, in turns of that
/// many steps, so that both meet the same moods of the machine. Says how long the loop of a step that saves takes,
/// beside the median of the others; and the time of all steps with saves over that of all without. A loop's time is
/// everything from step to step; a step that saves counts, too, what its save still had to do when the next one was
/// due.
///   DIR must be new or empty; what was written there is removed. All ranks call it; it writes on rank 0. Throws Error.
int run_bench_save(std::span<const std::string> words, Session& session, std::ostream& out);

}  // namespace ashlar::launch
