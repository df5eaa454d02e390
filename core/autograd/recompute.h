#pragma once

#include <functional>

#include "core/autograd/tape.h"

namespace ashlar {

/// Runs `body` without recording and stores only its input. Backward runs it again on a separate tape. `body` must
/// depend only on context and input, which dropout does, since its masks are functions of global indices.
/// Source: Chen et al. 2016 (arXiv:1604.06174).
Var recompute(const Ctx& ctx, const Var& input, std::function<Var(const Ctx&, const Var&)> body);

}  // namespace ashlar
