#include "parallel/tensor/collectives.h"

#include <memory>
#include <utility>

#include "parallel/tensor/started.h"

namespace ashlar::tensor {

namespace {

/// Starts an all-reduce, in place if no other reference to the partial sum exists.
Started start_all_reduce(const Ctx& ctx, Tensor partial, const TensorParallel& tp) {
  Tensor in = packed(ctx, std::move(partial));
  Tensor out = in.unique() ? in : ctx.empty(in.dtype(), in.shape());
  comm::Work work =
      tp.group->all_reduce({.in = in.view(), .out = out.mut_view(), .op = comm::ReduceOp::kSum}, ctx.stream);
  return std::make_shared<Collective>(std::move(in), std::move(out), std::move(work));
}

Started start_all_gather(const Ctx& ctx, Tensor shard, const TensorParallel& tp) {
  Tensor in = packed(ctx, std::move(shard));
  Tensor out = ctx.empty(in.dtype(), {in.rows() * tp.size(), in.cols()});
  comm::Work work = tp.group->all_gather({.in = in.view(), .out = out.mut_view(), .parts = {}}, ctx.stream);
  return std::make_shared<Collective>(std::move(in), std::move(out), std::move(work));
}

Started start_reduce_scatter(const Ctx& ctx, Tensor partial, const TensorParallel& tp) {
  ASHLAR_CHECK(partial.rows() % tp.size() == 0, partial.rows(), " rows cannot be sharded over ", tp.size(), " ranks");
  Tensor in = packed(ctx, std::move(partial));
  Tensor out = ctx.empty(in.dtype(), {in.rows() / tp.size(), in.cols()});
  comm::Work work = tp.group->reduce_scatter({.in = in.view(), .out = out.mut_view(), .parts = {}}, ctx.stream);
  return std::make_shared<Collective>(std::move(in), std::move(out), std::move(work));
}

Tensor all_reduced(const Ctx& ctx, const Tensor& partial, const TensorParallel& tp) {
  return start_all_reduce(ctx, partial, tp)->wait(ctx.stream);
}
Tensor gathered(const Ctx& ctx, const Tensor& shard, const TensorParallel& tp) {
  return start_all_gather(ctx, shard, tp)->wait(ctx.stream);
}
Tensor scattered(const Ctx& ctx, const Tensor& partial, const TensorParallel& tp) {
  return start_reduce_scatter(ctx, partial, tp)->wait(ctx.stream);
}

/// Returns x with a new placement. Used on a group of one rank, which needs no communication.
Var renamed(Var x, const ValueInfo& info) {
  x.info = info;
  return x;
}

}  // namespace

Var tp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const ValueInfo info = place(ctx, "tp_enter", x, {{Placement::kInvariant, Placement::kPartialGrad}});
  if (tp.size() == 1) return renamed(x, info);
  Var out = record_collective(ctx, info, x, x.value,
                              [ctx, tp](Tensor dy) { return start_all_reduce(ctx, std::move(dy), tp); });
  out.rematerialize = x.rematerialize;  // out has the value of x, so backward recomputes it as it recomputes x
  return out;
}

Var tp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const ValueInfo info = place(ctx, "tp_exit", x, {{Placement::kPartialSum, Placement::kInvariant}});
  if (tp.size() == 1) return renamed(x, info);
  const Var out = result(ctx, all_reduced(ctx, x.value, tp), info);
  if (ctx.tape == nullptr) return out;
  ctx.tape->record(out, [input = x.without_value()](Tape& tape, const Tensor& dy) { tape.add_grad(input, dy); });
  return out;
}

Var sp_enter(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const ValueInfo info = place(ctx, "sp_enter", x, {{Placement::kRowsSplit, Placement::kPartialGrad}});
  if (tp.size() == 1) return renamed(x, info);
  Var out = record_collective(ctx, info, x, gathered(ctx, x.value, tp),
                              [ctx, tp](Tensor dy) { return start_reduce_scatter(ctx, std::move(dy), tp); });
  if (ctx.tape != nullptr) {
    out.rematerialize = std::make_shared<Rematerialize>(Rematerialize{.start = [ctx, tp, shard = Saved(x)] {
      return [ctx, under_way = start_all_gather(ctx, shard.get(), tp)] { return under_way->wait(ctx.stream); };
    }});
  }
  return out;
}

Var sp_exit(const Ctx& ctx, const Var& x, const TensorParallel& tp) {
  const ValueInfo info = place(ctx, "sp_exit", x, {{Placement::kPartialSum, Placement::kRowsSplit}});
  if (tp.size() == 1) return renamed(x, info);
  return record_collective(ctx, info, x, scattered(ctx, x.value, tp),
                           [ctx, tp](Tensor dy) { return start_all_gather(ctx, std::move(dy), tp); });
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
