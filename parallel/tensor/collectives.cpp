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
  tp.group->all_reduce({.in = in.view(), .out = out.mut_view(), .op = comm::ReduceOp::kSum}).wait();
  return out;
}

Tensor gathered(const Ctx& ctx, const Tensor& shard, const TensorParallel& tp) {
  const Tensor in = packed(ctx, shard);
  const Tensor out = ctx.empty(in.dtype(), {in.rows() * tp.size(), in.cols()});
  tp.group->all_gather({.in = in.view(), .out = out.mut_view(), .parts = {}}).wait();
  return out;
}

Tensor scattered(const Ctx& ctx, const Tensor& partial, const TensorParallel& tp) {
  ASHLAR_CHECK(partial.rows() % tp.size() == 0, partial.rows(), " rows over ", tp.size(), " ranks");
  const Tensor in = packed(ctx, partial);
  const Tensor out = ctx.empty(in.dtype(), {in.rows() / tp.size(), in.cols()});
  tp.group->reduce_scatter({.in = in.view(), .out = out.mut_view(), .parts = {}}).wait();
  return out;
}

/// A node whose gradient goes through `back` on its way to the input.
Var record(const Ctx& ctx, std::string_view name, const Var& x, const Tensor& y,
           std::function<Tensor(const Tensor& dy)> back) {
  if (ctx.tape == nullptr) return {.value = y};
  const Var out = ctx.tape->output(y);
  Var input = x;
  input.value = {};  // only its place on the tape is needed
  input.rematerialize = nullptr;
  ctx.tape->record(name, out, [input, slot = out.slot, back = std::move(back)](Tape& tape, WeightWork*) {
    tape.add_grad(input, back(tape.take_grad({.value = {}, .slot = slot})));
  });
  return out;
}

}  // namespace

Var tp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  Var out = record(ctx, "tp_enter", x, x.value, [ctx, tp](const Tensor& dy) { return all_reduced(ctx, dy, tp); });
  out.rematerialize = x.rematerialize;  // the same value, made again the same way
  return out;
}

Var tp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  return record(ctx, "tp_exit", x, all_reduced(ctx, x.value, tp), [](const Tensor& dy) { return dy; });
}

Var sp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  Var out = record(ctx, "sp_enter", x, gathered(ctx, x.value, tp),
                   [ctx, tp](const Tensor& dy) { return scattered(ctx, dy, tp); });
  if (ctx.tape != nullptr) {
    out.rematerialize = std::make_shared<Rematerialize>(
        Rematerialize{.make = [ctx, tp, shard = Saved(x)] { return gathered(ctx, shard.get(), tp); }});
  }
  return out;
}

Var sp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  if (tp.size() == 1) return x;
  return record(ctx, "sp_exit", x, scattered(ctx, x.value, tp),
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

void GroupReduction::max(MutView values, Stream&) {
  group_.all_reduce({.in = values, .out = values, .op = comm::ReduceOp::kMax}).wait();
}

void GroupReduction::sum(MutView values, Stream&) {
  group_.all_reduce({.in = values, .out = values, .op = comm::ReduceOp::kSum}).wait();
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
