#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// Returns [shared | head h of own] for each of this rank's `heads` heads, side by side: [N, heads*(S+P)] (see
/// core/backend/concat_shared_head.h). shared [N, S] is the same on all tensor ranks; own [N, heads*P] has this rank's
/// heads. The gradient of shared is partial: the sum over this rank's heads.
Var concat_shared_head(const Ctx& ctx, const Var& shared, const Var& own, int64_t heads);

}  // namespace ashlar::ops
