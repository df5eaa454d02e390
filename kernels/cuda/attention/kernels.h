#pragma once

#include "core/device/stream.h"
#include "kernels/cuda/attention/problem.h"

/// The kernels of attention; each function queues one of them on a stream. The file of each kernel explains its steps.
namespace ashlar::ASHLAR_DEV::attention {

/// Largest head_dim of the tensor core kernels.
inline constexpr int kMaxTileWidth = 256;
/// Number of queries of a tile in `key_ranges`. In every other kernel, the number of queries of a tile is a multiple or
/// a divisor of kQueryTile.
inline constexpr int kQueryTile = 32;

/// Tensor core kernels: bf16, D <= kMaxTileWidth.
void forward_bf16(const Problem& p, const ForwardArrays<BF16>& arrays, Stream& stream);
void backward_keys_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);
void backward_queries_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);

/// Launches the variant of a tensor core kernel for a call: Kernel::launch<plan, with dropout, with score changes>.
/// Score changes are soft cap, ALiBi and T5's bias. Score changes and dropout need registers, so plans with them may
/// have other tile sizes. Only the variant with score changes reads KeyMask::last_keys.
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

/// dsinks [H] (+)= minus the sum over b and t of exp(sink - lse) * delta.
template <typename S>
void sink_gradient(const Problem& p, const BackwardArrays<S>& arrays, AccumulateOf<S>* dsinks, bool accumulate,
                   Stream& stream);

/// Fills `biases` [H, distances] with the T5 bias of each head and distance. T5's table has the biases by bucket.
template <typename S>
void gather_biases(const Problem& p, const Scores<S>& scores, AccumulateOf<S>* biases, Stream& stream);

/// Number of queries that one block of bias_gradient processes.
inline constexpr int kBiasQueries = 64;
/// dbias [buckets, H] (+)= the sums of the gradients of the scores, over all samples and all pairs of a query and a key
/// whose distance is in the bucket. The rows of dbias are `row` elements apart.
/// `partials` is scratch memory for [B, ceil(T_q / kBiasQueries), H, buckets] doubles.
template <typename S>
void bias_gradient(const Problem& p, const BackwardArrays<S>& arrays, double* partials, AccumulateOf<S>* dbias,
                   int64_t row, bool accumulate, Stream& stream);

/// Computes key ranges for masks with documents, windows or chunks.
/// - first_keys [B, T_q]: the first key that each query sees (T_kv if its document begins after all keys)
/// - last_keys [B, T_q], may be null: the last key that each query sees; less than the first key if the query sees none
/// - tile_keys [B, ceil(T_q / kQueryTile)], may be null: four numbers for each tile of queries. x is the smallest first
///   key of the queries that see a key (T_kv if none does). y, z and w are the largest first key, the largest last key
///   and the smallest last key of all queries of the tile.
void key_ranges(const Problem& p, int* first_keys, int* last_keys, int4* tile_keys, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV::attention
