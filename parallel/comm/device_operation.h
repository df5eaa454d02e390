#pragma once

#include <span>
#include <variant>

#include "core/tensor/view.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/ranges.h"

namespace ashlar::comm {

/// Views are taken as flat arrays and must be contiguous; an empty one may be absent. Reductions take fp64, fp32, bf16
/// and int32, the other operations any dtype. `p` is the number of ranks. Buffers belong to the operation until its
/// Work is done: nobody else writes any of them, nobody reads what it writes.

/// out = in of rank 0 (op) in of rank 1 (op) ...
struct AllReduce {
  ConstView in;   ///< [n] read
  MutView out;    ///< [n] written; the memory of `in`, or apart from it
  ReduceOp op{};  ///< must be given
};
/// out = the caller's part of the sum of all `in`.
struct ReduceScatter {
  ConstView in;  ///< [n] read
  MutView out;   ///< written; its own part of `in`, or apart from it
  /// Which elements of `in` each rank gets; equal on all ranks, ascending, gaps allowed. Empty: p equal parts.
  std::span<const Range> parts;
};
/// out = the parts of all ranks at their places.
struct AllGather {
  ConstView in;                  ///< the caller's part; its own place in `out`, or apart from it
  MutView out;                   ///< [n] written, but for gaps
  std::span<const Range> parts;  ///< as for ReduceScatter, over `out`
};
/// Each rank sends one part of `send` to every rank, itself included, and gets one part of `recv` from every rank. The
/// parts of `recv` are in the order of the ranks they come from. Counts may differ for every pair of ranks:
/// recv_parts[r] on this rank has as many elements as send_parts[this rank] on rank r.
struct AllToAll {
  ConstView send;                     ///< [n] read
  MutView recv;                       ///< [m] written, but for gaps; of the dtype of `send`, apart from it
  std::span<const Range> send_parts;  ///< what goes to each rank: ascending, gaps allowed. Empty: p equal parts
  std::span<const Range> recv_parts;  ///< where it lies that comes from each rank; as for send_parts
};
struct Broadcast {
  MutView data;  ///< [n] read on `root`, written elsewhere
  int root = 0;
};
struct Send {
  ConstView data;
  int to = -1;
};
struct Recv {
  MutView data;  ///< as many elements as are sent
  int from = -1;
};
/// Both at once; either peer may be the other's.
struct SendRecv {
  ConstView send;
  int to = -1;
  MutView recv;  ///< apart from `send`
  int from = -1;
};
/// Nobody's is complete before everybody came.
struct Barrier {};

/// Any of them, for those who hand operations on.
using DeviceOperation =
    std::variant<AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Send, Recv, SendRecv, Barrier>;

/// Calls the one of `cases` (functions of one kind of operation each) that fits.
template <typename... Case>
struct Cases : Case... {
  using Case::operator()...;
};

/// The elements of a flat view that a range names.
template <AnyView View>
View part_of(const View& view, const Range& range) {
  return flat_range(view, range.begin, range.size());
}

}  // namespace ashlar::comm
