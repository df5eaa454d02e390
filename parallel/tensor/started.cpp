#include "parallel/tensor/started.h"

namespace ashlar::tensor {

Tensor packed(const Ctx& ctx, Tensor t) {
  if (t.contiguous()) return t;
  const Tensor copy = ctx.empty(t.dtype(), t.shape());
  ctx.backend.copy({.src = t.view(), .dst = copy.mut_view()}, ctx.stream);
  return copy;
}

Var record_collective(const Ctx& ctx, const ValueInfo& info, const Var& x, const Tensor& y,
                      std::function<Started(Tensor dy)> start) {
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;
  ctx.tape->record_exchange(out, [ctx, input = x.without_value(), start = std::move(start)](Tensor dy) {
    return [ctx, input, under_way = start(std::move(dy))](Tape& tape) {
      tape.add_grad(input, under_way->wait(ctx.stream));
    };
  });
  return out;
}

}  // namespace ashlar::tensor
