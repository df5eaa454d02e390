#include "core/autograd/recompute.h"

#include <memory>

namespace ashlar {

Var recompute(const Ctx& ctx, const Var& input, std::function<Var(const Ctx&, const Var&)> body) {
  Ctx silent = ctx;
  silent.tape = nullptr;
  const auto kept = ctx.tape == nullptr ? nullptr : std::make_shared<KeptValues>();
  silent.kept = kept.get();
  const Var plain = body(silent, Var{.value = input.value, .info = input.info});
  if (ctx.tape == nullptr) return plain;

  const Var out = ctx.tape->output(plain.value, plain.info);
  ctx.tape->record(out, [ctx, input, body, kept](Tape& tape, Tensor dy) {
    Tape inner(ctx.backend, ctx.stream);
    Ctx again = ctx;
    again.tape = &inner;
    again.kept = kept.get();
    kept->begin_second_run();
    const Var leaf = inner.leaf(input.value, input.info);
    inner.seed(body(again, leaf), std::move(dy));
    inner.backward(tape.deferred());
    if (input.requires_grad()) {
      const Tensor grad = inner.leaf_grad(leaf);
      if (grad) tape.add_grad(input, grad);
    }
  });
  return out;
}

}  // namespace ashlar
