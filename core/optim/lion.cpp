#include "core/optim/lion.h"

namespace ashlar::optim {

const Rule& lion() {
  static constexpr StateName kState[] = {{"m", "moving averages"}};
  static constexpr Rule kRule = {.defaults = kLionDefaults, .state = kState, .make = &make<Lion>};
  return kRule;
}

void Lion::step(const Ctx& ctx, const ConstView& clip) {
  ctx.backend.lion(
      {.update = update(ctx, clip), .m = state_view(0), .beta1 = options().beta1, .beta2 = options().beta2},
      ctx.stream);
}

}  // namespace ashlar::optim
