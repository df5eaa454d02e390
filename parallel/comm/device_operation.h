#pragma once

#include <span>
#include <variant>

#include "core/tensor/view.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/ranges.h"

namespace ashlar::comm {

/// Views are treated as flat arrays and must be contiguous; an empty view may have a null pointer. Reductions support
/// fp64, fp32, bf16 and int32, other operations any dtype. Below, p is the number of ranks. Buffers belong to the
/// operation until its Work is done: no other code may write them or read the outputs.

/// out = in of rank 0 (op) in of rank 1 (op) ...
struct AllReduce {
  ConstView in;   ///< [n] read
  MutView out;    ///< [n] written; exactly the memory of `in`, or disjoint from it
  ReduceOp op{};  ///< must be given
};
/// out = this rank's part of the sum of `in` over all ranks.
struct ReduceScatter {
  ConstView in;  ///< [n] read
  MutView out;   ///< written; exactly this rank's part of `in`, or disjoint from `in`
  /// The range of `in` for each rank. The same on all ranks, ascending; gaps are allowed. Empty: p equal parts.
  std::span<const Range> parts;
};
/// out = the parts of all ranks at their positions.
struct AllGather {
  ConstView in;                  ///< this rank's part; exactly at its position in `out`, or disjoint from `out`
  MutView out;                   ///< [n] written, except gaps
  std::span<const Range> parts;  ///< the range of `out` from each rank; rules as for ReduceScatter
};
/// Each rank sends one part of `send` to every rank, including itself, and receives one part of `recv` from every rank.
/// Parts of `recv` are ordered by source rank. Counts may differ for every pair of ranks: recv_parts[r] on this rank
/// has as many elements as send_parts[this rank] on rank r.
struct AllToAll {
  ConstView send;                     ///< [n] read
  MutView recv;                       ///< [m] written, except gaps; same dtype as `send` and disjoint from it
  std::span<const Range> send_parts;  ///< range of `send` for each rank; ascending, gaps allowed. Empty: p equal parts
  std::span<const Range> recv_parts;  ///< range of `recv` from each rank; rules as for send_parts
};
struct Broadcast {
  MutView data;  ///< [n] read on `root`, written on all other ranks
  int root = 0;
};
struct Send {
  ConstView data;
  int to = -1;
};
struct Recv {
  MutView data;  ///< must have as many elements as were sent
  int from = -1;
};
/// Sends and receives at the same time; `to` and `from` may be the same rank.
struct SendRecv {
  ConstView send;
  int to = -1;
  MutView recv;  ///< disjoint from `send`
  int from = -1;
};
/// Completes on a rank only after all ranks have issued it.
struct Barrier {};

/// Any of the operations, for code that handles all kinds.
using DeviceOperation =
    std::variant<AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Send, Recv, SendRecv, Barrier>;

/// Combines functions, each for one operation type, into a visitor for std::visit.
template <typename... Case>
struct Cases : Case... {
  using Case::operator()...;
};

/// Returns the part of a flat view that lies in `range`.
template <AnyView View>
View part_of(const View& view, const Range& range) {
  return flat_range(view, range.begin, range.size());
}

}  // namespace ashlar::comm
