#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Builds heads that share their first S columns: head h of y is [shared | head h of own]. Used for the keys of
/// multi-head latent attention, whose rotary part is the same in all heads. Source: DeepSeek-AI 2024 (arXiv:2405.04434)
/// eq. 16.
struct ConcatSharedHead {
  ConstView shared;   ///< [N, S] storage dtype, read
  ConstView own;      ///< [N, heads*P] storage dtype, read
  MutView y;          ///< [N, heads*(S+P)] storage dtype, written
  int64_t heads = 0;  ///< number of heads, at least 1

  auto views() const { return std::tie(shared, own, y); }
};

/// dshared (+)= the first S columns of each head of dy, summed over heads in ascending order in the accumulate dtype.
/// `down`, the gradient of `own`, (+)= the other P columns of each head of dy.
struct ConcatSharedHeadBackward {
  ConstView dy;                          ///< [N, heads*(S+P)] storage dtype, read
  MutView dshared;                       ///< [N, S] storage dtype, written or accumulated (mode)
  MutView down;                          ///< [N, heads*P] storage dtype, written or accumulated (mode)
  int64_t heads = 0;                     ///< number of heads, as in forward
  GradMode mode = GradMode::kOverwrite;  ///< mode of dshared and down

  auto views() const { return std::tie(dy, dshared, down); }
};

}  // namespace ashlar
