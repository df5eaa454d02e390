#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// [shared | head h of own] for each of `heads` heads (core/backend/concat_shared_head.h): shared [N, S], the same on
/// every tensor rank, own [N, heads*P] of this rank's heads -> [N, heads*(S+P)]. The gradient of shared is this rank's
/// part of a sum.
Var concat_shared_head(const Ctx& ctx, const Var& shared, const Var& own, int64_t heads);

}  // namespace ashlar::ops
