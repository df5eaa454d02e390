#include "core/nn/expert_counts.h"

#include "core/nn/parameter.h"

namespace ashlar::nn {

namespace {

MutView view_of(const Buffer* buffer) { return buffer == nullptr ? MutView{} : buffer->values.mut_view(); }

}  // namespace

void ExpertCounts::set_size(int64_t layers, int64_t experts) {
  num_layers_ = layers;
  experts_ = experts;
}

void ExpertCounts::allocate(const Ctx& ctx) {
  if (experts_ > 0) values_ = ctx.empty(DType::kFloat64, {num_layers_, experts_}, MemoryKind::kWorkspace);
}

void ExpertCounts::begin_step(const Ctx& ctx) const {
  if (values_) ctx.backend.fill({.dst = values_.mut_view(), .value = 0}, ctx.stream);
}

MutView ExpertCounts::slot(const Ctx& ctx, int64_t row) const {
  return ctx.tape == nullptr ? MutView{} : values_.flat_range(row * experts_, experts_).mut_view();
}

void ExpertCounts::update(const Ctx& ctx, const ConstView& clip) const {
  for (const Layer& layer : layers_) {
    if (layer.selection_bias == nullptr && layer.previous_counts == nullptr) continue;
    ctx.backend.balance_update({.counts = values_.flat_range(layer.row * experts_, experts_).view(),
                                .selection_bias = view_of(layer.selection_bias),
                                .previous_counts = view_of(layer.previous_counts),
                                .clip = clip,
                                .rate = layer.bias_rate},
                               ctx.stream);
  }
}

}  // namespace ashlar::nn
