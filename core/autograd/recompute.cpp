#include "core/autograd/recompute.h"

namespace ashlar {

Var recompute(const Ctx& ctx, const Var& input, std::function<Var(const Ctx&, const Var&)> body) {
  Ctx silent = ctx;
  silent.tape = nullptr;
  const Var plain = body(silent, Var{.value = input.value, .slot = -1, .rematerialize = nullptr});
  if (ctx.tape == nullptr) return plain;

  const Var result = ctx.tape->output(plain.value);
  ctx.tape->record("recompute", result, [ctx, input, result, body](Tape& tape, WeightWork* deferred) {
    Tape inner(ctx.backend, ctx.stream);
    Ctx again = ctx;
    again.tape = &inner;
    const Var leaf = inner.leaf(input.value);
    const Var out = body(again, leaf);
    inner.seed(out, tape.take_grad(result));
    inner.backward(deferred);
    if (input.requires_grad()) {
      const Tensor grad = inner.leaf_grad(leaf);
      if (grad) tape.add_grad(input, grad);
    }
  });
  return result;
}

}  // namespace ashlar
