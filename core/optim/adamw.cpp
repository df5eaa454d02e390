#include "core/optim/adamw.h"

#include <cmath>

namespace ashlar::optim {

const Rule& adamw() {
  static constexpr StateName kState[] = {{"m", "first moments"}, {"v", "second moments"}};
  static constexpr Rule kRule = {.defaults = {}, .state = kState, .make = &make<AdamW>};
  return kRule;
}

void AdamW::step(const Ctx& ctx, const ConstView& clip) {
  ctx.backend.adamw({.update = update(ctx, clip),
                     .m = state_view(0),
                     .v = state_view(1),
                     .beta1 = options().beta1,
                     .beta2 = options().beta2,
                     .eps = options().eps},
                    ctx.stream);
}

void AdamW::set_scalars(int64_t step, StepScalars& scalars) const {
  const double t = static_cast<double>(step + 1);
  scalars.beta1_correction = 1 - std::pow(options().beta1, t);
  scalars.beta2_correction = 1 - std::pow(options().beta2, t);
}

}  // namespace ashlar::optim
