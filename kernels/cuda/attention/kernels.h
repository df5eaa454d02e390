#pragma once

#include "core/device/stream.h"
#include "kernels/cuda/attention/problem.h"

/// The parts of attention, each queued on a stream. The file of each part explains its computation step by step.
namespace ashlar::ASHLAR_DEV::attention {

/// Largest head_dim of the tensor core kernels.
inline constexpr int kMaxTileWidth = 256;
/// Queries of a tile in `key_ranges`; a divisor, or a multiple, of each kernel's tile of queries.
inline constexpr int kQueryTile = 32;

/// Tensor core kernels: bf16, D <= kMaxTileWidth.
void forward_bf16(const Problem& p, const ForwardArrays<BF16>& arrays, Stream& stream);
void backward_keys_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);
void backward_queries_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);

/// Launches Kernel::launch<plan, dropout, changes>, the variant of a tensor core kernel for a call. Dropout and score
/// changes need registers, so their plans may have smaller tiles. Only the variant with changes reads lists of last
/// keys.
template <typename Kernel, typename Plan, typename DropoutPlan = Plan, typename ChangesPlan = DropoutPlan,
          typename Arrays>
void launch_variant(const Problem& p, const Arrays& arrays, Stream& stream) {
  if (arrays.scores.change() || p.mask.last_keys != nullptr)
    return Kernel::template launch<ChangesPlan, true, true>(p, arrays, stream);
  p.dropout.scalars ? Kernel::template launch<DropoutPlan, true, false>(p, arrays, stream)
                    : Kernel::template launch<Plan, false, false>(p, arrays, stream);
}

/// SIMT kernels: every storage type and head_dim; D_v may differ from D.
template <typename S>
void forward_simt(const Problem& p, const ForwardArrays<S>& arrays, Stream& stream);
template <typename S>
void backward_keys_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream);
template <typename S>
void backward_queries_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream);

/// delta [B, H, T_q] = the sum over d of out * dout.
template <typename S>
void delta(const Problem& p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, Stream& stream);

/// dsinks [H] (+)= - the sum over b and t of exp(sink - lse) * delta.
template <typename S>
void sink_gradient(const Problem& p, const BackwardArrays<S>& arrays, AccumulateOf<S>* dsinks, bool accumulate,
                   Stream& stream);

/// Gathers T5's biases by distance, [H, distances], from the table.
template <typename S>
void gather_biases(const Problem& p, const Scores<S>& scores, AccumulateOf<S>* biases, Stream& stream);

/// Queries of a block of the pass over scores for the gradient of T5's table.
inline constexpr int kBiasQueries = 64;
/// dbias [buckets, H] (+)= the sums over b, i, j of the gradients of scores. `partials` is scratch:
/// [B, ceil(T_q / kBiasQueries), H, buckets] in double.
template <typename S>
void bias_gradient(const Problem& p, const BackwardArrays<S>& arrays, double* partials, AccumulateOf<S>* dbias,
                   int64_t row, bool accumulate, Stream& stream);

/// Computes key ranges for documents, windows and chunks. first_keys [B, T_q]: the first key that each query sees, if
/// it sees any (T_kv if its document begins later than all keys). last_keys [B, T_q], may be null: the last one.
/// tile_keys [B, ceil(T_q / kQueryTile)], may be null: for each tile of queries the smallest first key of the queries
/// that see a key (T_kv if none does), and over all its queries the largest first key, the largest last key and the
/// smallest last key.
void key_ranges(const Problem& p, int* first_keys, int* last_keys, int4* tile_keys, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV::attention
