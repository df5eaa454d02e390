#include "parallel/tensor/collectives.h"

namespace ashlar::tensor {

namespace {

/// Contiguous memory with the values of t: t itself, or a copy of a column slice.
Tensor packed(const Ctx& ctx, const Tensor& t) {
  if (t.contiguous()) return t;
  const Tensor copy = ctx.empty(t.dtype(), t.shape());
  ctx.backend.copy({.src = t.view(), .dst = copy.mut_view()}, ctx.stream);
  return copy;
}

Tensor all_reduced(const Ctx& ctx, const Tensor& partial, const TensorParallel& tp) {
  const Tensor in = packed(ctx, partial);
  const Tensor out = ctx.empty(in.dtype(), in.shape());
  tp.group->all_reduce({.in = in.view(), .out = out.mut_view(), .op = comm::ReduceOp::kSum}, ctx.stream)
      .wait(ctx.stream);
  return out;
}

Tensor gathered(const Ctx& ctx, const Tensor& shard, const TensorParallel& tp) {
  const Tensor in = packed(ctx, shard);
  const Tensor out = ctx.empty(in.dtype(), {in.rows() * tp.size(), in.cols()});
  tp.group->all_gather({.in = in.view(), .out = out.mut_view(), .parts = {}}, ctx.stream).wait(ctx.stream);
  return out;
}

Tensor scattered(const Ctx& ctx, const Tensor& partial, const TensorParallel& tp) {
  ASHLAR_CHECK(partial.rows() % tp.size() == 0, partial.rows(), " rows over ", tp.size(), " ranks");
  const Tensor in = packed(ctx, partial);
  const Tensor out = ctx.empty(in.dtype(), {in.rows() / tp.size(), in.cols()});
  tp.group->reduce_scatter({.in = in.view(), .out = out.mut_view(), .parts = {}}, ctx.stream).wait(ctx.stream);
  return out;
}

/// A node whose gradient goes through `back` on its way to the input.
Var record(const Ctx& ctx, const Made& made, const Var& x, const Tensor& y,
           std::function<Tensor(const Tensor& dy)> back) {
  const Var out = result(ctx, y, made);
  if (ctx.tape == nullptr) return out;
  ctx.tape->record(out, [input = x.without_value(), back = std::move(back)](Tape& tape, const Tensor& dy, WeightWork*) {
    tape.add_grad(input, back(dy));
  });
  return out;
}

/// On one rank there is nothing to communicate: the same value under its new name.
Var renamed(Var x, const Made& made) {
  x.made = made;
  return x;
}

}  // namespace

Var tp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const Made made = place(ctx, "tp_enter", x, {{Placement::kInvariant, Placement::kReplicated}});
  if (tp.size() == 1) return renamed(x, made);
  Var out = record(ctx, made, x, x.value, [ctx, tp](const Tensor& dy) { return all_reduced(ctx, dy, tp); });
  out.rematerialize = x.rematerialize;  // the same value, made again the same way
  return out;
}

Var tp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const Made made = place(ctx, "tp_exit", x, {{Placement::kPartialSum, Placement::kInvariant}});
  if (tp.size() == 1) return renamed(x, made);
  return record(ctx, made, x, all_reduced(ctx, x.value, tp), [](const Tensor& dy) { return dy; });
}

Var sp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const Made made = place(ctx, "sp_enter", x, {{Placement::kRowsSplit, Placement::kReplicated}});
  if (tp.size() == 1) return renamed(x, made);
  Var out =
      record(ctx, made, x, gathered(ctx, x.value, tp), [ctx, tp](const Tensor& dy) { return scattered(ctx, dy, tp); });
  if (ctx.tape != nullptr) {
    out.rematerialize = std::make_shared<Rematerialize>(
        Rematerialize{.make = [ctx, tp, shard = Saved(x)] { return gathered(ctx, shard.get(), tp); }});
  }
  return out;
}

Var sp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const Made made = place(ctx, "sp_exit", x, {{Placement::kPartialSum, Placement::kRowsSplit}});
  if (tp.size() == 1) return renamed(x, made);
  return record(ctx, made, x, scattered(ctx, x.value, tp),
                [ctx, tp](const Tensor& dy) { return gathered(ctx, dy, tp); });
}

Var enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  return tp.sequence_parallel ? sp_enter(ctx, x, tp) : tp_enter(ctx, x, tp);
}

Var exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  return tp.sequence_parallel ? sp_exit(ctx, x, tp) : tp_exit(ctx, x, tp);
}

Ctx with_local_rows(const Ctx& ctx, int64_t rows, const TensorParallel& tp) {
  Ctx local = ctx;
  if (tp.sequence_parallel) local.dropout.row0 = tp.rank() * rows;
  return local;
}

void GroupReduction::max(MutView values, Stream& stream) {
  group_.all_reduce({.in = values, .out = values, .op = comm::ReduceOp::kMax}, stream).wait(stream);
}

void GroupReduction::sum(MutView values, Stream& stream) {
  group_.all_reduce({.in = values, .out = values, .op = comm::ReduceOp::kSum}, stream).wait(stream);
}

Tensor gather_columns(const Ctx& ctx, const Tensor& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  const int64_t rows = x.rows(), cols = x.cols();
  const Tensor stacked = gathered(ctx, x, tp);  // [size * N, M/size]
  const Tensor out = ctx.empty(x.dtype(), {rows, cols * tp.size()});
  for (int64_t r = 0; r < tp.size(); ++r) {
    ctx.backend.copy(
        {.src = stacked.row_range(r * rows, rows).view(), .dst = out.column_range(r * cols, cols).mut_view()},
        ctx.stream);
  }
  return out;
}

}  // namespace ashlar::tensor
