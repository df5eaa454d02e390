#pragma once

#include "core/autograd/tape.h"
#include "core/ops/fused_linear_cross_entropy.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::tensor {

/// The communication of a block, in differentiable pairs: the forward of one function is the backward of the other. On
/// a group of one rank the functions return the input with its new placement and record nothing.
///
///              forward                         backward                        takes -> gives
///   tp_enter   identity                        all_reduce of the gradient      invariant -> partial gradient
///   tp_exit    all_reduce of partial sums      identity                        partial sum -> invariant
///   sp_enter   all_gather of rows              reduce_scatter of the gradient  rows split -> partial gradient
///   sp_exit    reduce_scatter of partial sums  all_gather of the gradient      partial sum -> rows split
///
/// The last column names placements (core/autograd/placement.h); invariant means equal on every rank.
/// tp_enter and tp_exit are Megatron's f and g.
/// Values are [N, C] in storage dtype, N = B*T. If rows are split, a rank has rows [N/size*rank, N/size*(rank+1)).
/// Sums follow the rules of comm::Communicator.
/// Sources: Shoeybi et al. 2019 (arXiv:1909.08053) figure 3; Korthikanti et al. 2022 (arXiv:2205.05198) section 4.2.

/// Enters the sharded part: x [N, C], equal on every rank -> x.
Var tp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp);
/// Leaves the sharded part: a partial sum [N, C] -> the sum, equal on every rank.
Var tp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp);
/// Enters the sharded part: this rank's rows [N/size, C] -> all rows [N, C]. Operations that use the result keep only
/// this rank's rows for backward, and gather all rows again in backward.
Var sp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp);
/// Leaves the sharded part: a partial sum [N, C] -> this rank's rows [N/size, C] of the sum.
Var sp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp);

/// Calls sp_enter or sp_exit if tp.sequence_parallel, else tp_enter or tp_exit.
Var enter(const Ctx& ctx, const Var& x, const TensorParallel& tp);
Var exit(const Ctx& ctx, const Var& x, const TensorParallel& tp);

/// Returns the context for element-wise operations on this rank's `rows` rows of the residual stream. With it, dropout
/// uses the global index of a row.
Ctx with_local_rows(const Ctx& ctx, int64_t rows, const TensorParallel& tp);

/// All-reduces row maxima and row sums over the tensor group, in which each rank has a slice of the vocabulary and of
/// the heads. Used by fused_linear_cross_entropy and norm_heads.
class GroupReduction final : public ops::Reduction {
 public:
  explicit GroupReduction(comm::Communicator& group) : group_(group) {}
  int64_t ranks() const override { return group_.size(); }
  void max(MutView values, Stream& stream) override;
  void sum(MutView values, Stream& stream) override;

 private:
  comm::Communicator& group_;
};

/// Concatenates the columns of all ranks: x [N, M/size] -> [N, M]. Not differentiable; used for logits.
Tensor gather_columns(const Ctx& ctx, const Tensor& x, const TensorParallel& tp);

}  // namespace ashlar::tensor
