#pragma once

#include "core/device/stream.h"
#include "kernels/cuda/attention/problem.h"

/// The parts of attention, each queued on a stream. What they compute, step by step, is told in the files of their
/// names.
namespace ashlar::ASHLAR_DEV::attention {

/// Largest head_dim of the tensor core kernels.
inline constexpr int kMaxTileWidth = 256;
/// Largest head_dim of all.
inline constexpr int kMaxWidth = 512;
/// Queries of a tile in `query_tile_keys`; a divisor of each kernel's tile of queries.
inline constexpr int kQueryTile = 32;

/// On tensor cores: bf16, D <= kMaxTileWidth.
void forward_bf16(const Problem& p, const ForwardArrays<BF16>& arrays, Stream& stream);
void backward_keys_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);
void backward_queries_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream);

/// For every storage type and head_dim.
template <typename S>
void forward_simt(const Problem& p, const ForwardArrays<S>& arrays, Stream& stream);
template <typename S>
void backward_keys_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream);
template <typename S>
void backward_queries_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream);

/// delta [B, H, T_q] = the sum over d of out * dout.
template <typename S>
void delta(const Problem& p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, Stream& stream);

/// For documents: keys [B, ceil(T_q / kQueryTile)], the smallest and the largest first key of each tile's queries that
/// see a key, {T_kv, 0} where none does.
void query_tile_keys(const Problem& p, int2* keys, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV::attention
