#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Heads with their first S columns in common: head h of y is [shared | head h of own]. For the keys of latent
/// attention, whose rotated part is shared by all heads. Source: DeepSeek-AI 2024 (arXiv:2405.04434) eq. 16.
struct ConcatSharedHead {
  ConstView shared;   ///< [N, S] storage dtype, read
  ConstView own;      ///< [N, heads*P] storage dtype, read
  MutView y;          ///< [N, heads*(S+P)] storage dtype, written
  int64_t heads = 0;  ///< 1 or more

  auto views() const { return std::tie(shared, own, y); }
};

/// dshared = sum over heads, in order, in the accumulate dtype, of the first S columns of dy; down = the other columns.
struct ConcatSharedHeadBackward {
  ConstView dy;                          ///< [N, heads*(S+P)] storage dtype, read
  MutView dshared;                       ///< [N, S] storage dtype, by mode
  MutView down;                          ///< [N, heads*P] storage dtype, by mode
  int64_t heads = 0;                     ///< number of heads, as in forward
  GradMode mode = GradMode::kOverwrite;  ///< mode of both gradients

  auto views() const { return std::tie(dy, dshared, down); }
};

}  // namespace ashlar
