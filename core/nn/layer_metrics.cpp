#include "core/nn/layer_metrics.h"

#include <algorithm>

namespace ashlar::nn {

DeclaredMetric LayerMetrics::declare(const LayerMetric& sum) {
  ASHLAR_CHECK(!values_, sum.metric, ": expected sums to be declared before they are allocated");
  ASHLAR_CHECK(!sum.metric.empty() && sum.metric.find_first_of(" \t\n") == std::string::npos,
               "expected a metric without white space, got \"", sum.metric, "\"");
  const auto same = [&](const LayerMetric& other) { return other.metric == sum.metric; };
  const auto found = std::find_if(declared_.begin(), declared_.end(), same);
  const auto place = found - declared_.begin();
  if (found == declared_.end()) declared_.push_back(sum);
  ASHLAR_CHECK(declared_[static_cast<size_t>(place)] == sum, sum.metric,
               " is declared twice with different definitions");
  return {*this, place};
}

void LayerMetrics::allocate(const Ctx& ctx) {
  if (declared_.empty()) return;
  values_ = ctx.empty(DType::kFloat64, {static_cast<int64_t>(declared_.size())}, MemoryKind::kWorkspace);
}

void LayerMetrics::begin_step(const Ctx& ctx) const {
  for (size_t i = 0; i < declared_.size(); ++i) {
    ctx.backend.fill({.dst = values_.flat_range(static_cast<int64_t>(i), 1).mut_view(),
                      .value = declared_[i].join == Join::kMax ? kLeastMaximum : 0},
                     ctx.stream);
  }
}

MutView DeclaredMetric::slot(const Ctx& ctx) const {
  return ctx.tape == nullptr ? MutView{} : sums_->values().flat_range(place_, 1).mut_view();
}

void DeclaredMetric::add(const Ctx& ctx, const Tensor& value) const {
  const MutView sum = slot(ctx);
  if (sum) ctx.backend.residual_forward({.x = sum, .delta = value.view(), .y = sum}, ctx.stream);
}

void DeclaredMetric::add(const Ctx& ctx, double value) const {
  if (ctx.tape == nullptr) return;
  const Tensor device = ctx.empty(DType::kFloat64, Shape{1});
  ctx.backend.fill({.dst = device.mut_view(), .value = value}, ctx.stream);
  add(ctx, device);
}

}  // namespace ashlar::nn
