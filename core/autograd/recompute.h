#pragma once

#include <functional>

#include "core/autograd/tape.h"

namespace ashlar {

/// Activation checkpointing: runs `body` without recording and stores only the input. Backward runs `body` again on a
/// separate tape. `body` must depend only on the context and the input. `body` may contain dropout: its masks depend
/// only on seed, step and global indices, so both runs have the same masks.
/// Source: Chen et al. 2016 (arXiv:1604.06174).
Var recompute(const Ctx& ctx, const Var& input, std::function<Var(const Ctx&, const Var&)> body);

}  // namespace ashlar
