#pragma once

#include "core/backend/activation.h"
#include "core/backend/attention.h"
#include "core/backend/concat_shared_head.h"
#include "core/backend/cross_entropy.h"
#include "core/backend/elementwise.h"
#include "core/backend/embedding.h"
#include "core/backend/expert_rows.h"
#include "core/backend/grad_clip.h"
#include "core/backend/grouped_linear.h"
#include "core/backend/learned_scale.h"
#include "core/backend/linear.h"
#include "core/backend/linear_activation.h"
#include "core/backend/norm.h"
#include "core/backend/normalize_rows.h"
#include "core/backend/optimizer.h"
#include "core/backend/residual_norm.h"
#include "core/backend/rope.h"
#include "core/backend/routing.h"

/// Lists all kernels: KERNEL(method of Backend, args struct of the kernel).
#define ASHLAR_KERNELS(KERNEL)                                        \
  KERNEL(linear_forward, LinearForward)                               \
  KERNEL(linear_activation, LinearActivation)                         \
  KERNEL(linear_backward_input, LinearBackwardInput)                  \
  KERNEL(linear_backward_weight, LinearBackwardWeight)                \
  KERNEL(norm_forward, NormForward)                                   \
  KERNEL(norm_backward, NormBackward)                                 \
  KERNEL(norm_row_stats, NormRowStats)                                \
  KERNEL(norm_statistics, NormStatistics)                             \
  KERNEL(norm_apply, NormApply)                                       \
  KERNEL(norm_backward_row_sums, NormBackwardRowSums)                 \
  KERNEL(norm_backward_apply, NormBackwardApply)                      \
  KERNEL(normalize_rows, NormalizeRows)                               \
  KERNEL(normalize_rows_backward, NormalizeRowsBackward)              \
  KERNEL(activation_forward, ActivationForward)                       \
  KERNEL(activation_backward, ActivationBackward)                     \
  KERNEL(rope, Rope)                                                  \
  KERNEL(concat_shared_head, ConcatSharedHead)                        \
  KERNEL(concat_shared_head_backward, ConcatSharedHeadBackward)       \
  KERNEL(attention_forward, AttentionForward)                         \
  KERNEL(attention_backward, AttentionBackward)                       \
  KERNEL(embedding_forward, EmbeddingForward)                         \
  KERNEL(embedding_backward, EmbeddingBackward)                       \
  KERNEL(loss_mask, LossMask)                                         \
  KERNEL(loss_row_stats, LossRowStats)                                \
  KERNEL(loss_rescale, LossRescale)                                   \
  KERNEL(loss_max_count, LossMaxCount)                                \
  KERNEL(loss_reduce, LossReduce)                                     \
  KERNEL(loss_backward, LossBackward)                                 \
  KERNEL(loss_stats_and_grad, LossStatsAndGrad)                       \
  KERNEL(residual_forward, ResidualForward)                           \
  KERNEL(residual_norm_forward, ResidualNormForward)                  \
  KERNEL(dropout_backward, DropoutBackward)                           \
  KERNEL(learned_scale, LearnedScale)                                 \
  KERNEL(learned_scale_backward, LearnedScaleBackward)                \
  KERNEL(clamp, Clamp)                                                \
  KERNEL(clamp_backward, ClampBackward)                               \
  KERNEL(route_forward, RouteForward)                                 \
  KERNEL(route_backward, RouteBackward)                               \
  KERNEL(router_statistics, RouterStatistics)                         \
  KERNEL(balance_loss, BalanceLoss)                                   \
  KERNEL(balance_update, BalanceUpdate)                               \
  KERNEL(sort_choices, SortChoices)                                   \
  KERNEL(dispatch_rows, DispatchRows)                                 \
  KERNEL(combine_rows, CombineRows)                                   \
  KERNEL(grouped_linear_forward, GroupedLinearForward)                \
  KERNEL(grouped_linear_backward_input, GroupedLinearBackwardInput)   \
  KERNEL(grouped_linear_backward_weight, GroupedLinearBackwardWeight) \
  KERNEL(copy, Copy)                                                  \
  KERNEL(fill, Fill)                                                  \
  KERNEL(random_fill, RandomFill)                                     \
  KERNEL(set_struct, SetStruct)                                       \
  KERNEL(adamw, AdamW)                                                \
  KERNEL(lion, Lion)                                                  \
  KERNEL(sum_squares, SumSquares)                                     \
  KERNEL(clip_gradients, ClipGradients)
