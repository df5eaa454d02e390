#include "launch/training/global_layer_metrics.h"

#include <algorithm>
#include <sstream>

#include "parallel/comm/host.h"

namespace ashlar::training {

namespace {

std::string to_text(const nn::LayerMetric& sum) {
  return str_cat(sum.metric, " ", static_cast<int>(sum.join), " ", static_cast<int>(sum.per), " ", sum.divisor, " ",
                 sum.replicated_over.bits());
}

nn::LayerMetric sum_of(const std::string& text) {
  nn::LayerMetric sum;
  int join = 0, per = 0;
  uint32_t axes = 0;
  std::istringstream(text) >> sum.metric >> join >> per >> sum.divisor >> axes;
  sum.join = static_cast<nn::Join>(join);
  sum.per = static_cast<nn::Per>(per);
  sum.replicated_over = AxisSet(axes);
  return sum;
}

/// True if this rank reports its value of the metric: of several ranks with the same value, only the first does.
bool is_reported_here(const nn::LayerMetric& sum, const mesh::Coordinates& at) {
  return std::ranges::all_of(
      kAxisNames, [&](const auto& axis) { return !sum.replicated_over.has(axis.value) || at[axis.value] == 0; });
}

}  // namespace

GlobalLayerMetrics::GlobalLayerMetrics(const nn::LayerMetrics& own, mesh::Mesh& mesh) {
  std::vector<std::string> texts;
  for (const nn::LayerMetric& sum : own.declared()) texts.push_back(to_text(sum));
  for (const std::string& text : comm::unite_texts(mesh.control(), std::move(texts))) {
    all_.push_back(sum_of(text));
    ASHLAR_CHECK(all_.size() == 1 || all_.end()[-2].metric != all_.back().metric, all_.back().metric,
                 " is declared twice with different definitions");
  }
  for (const nn::LayerMetric& sum : own.declared()) {
    const auto place = std::ranges::find(all_, sum) - all_.begin();
    places_.push_back(is_reported_here(sum, mesh.at()) ? place : -1);
  }
}

nn::LayerMetricValues GlobalLayerMetrics::of_rank(std::span<const double> own) const {
  std::vector<double> values;
  for (const nn::LayerMetric& sum : all_)
    values.push_back(sum.join == nn::Join::kMax ? nn::LayerMetrics::kLeastMaximum : 0);
  for (size_t i = 0; i < own.size(); ++i)
    if (places_[i] >= 0) values[static_cast<size_t>(places_[i])] = own[i];
  nn::LayerMetricValues split;
  for (size_t i = 0; i < all_.size(); ++i) {
    (all_[i].join == nn::Join::kMax ? split.maxima : split.sums).push_back(values[i]);
  }
  return split;
}

std::vector<std::pair<std::string, double>> GlobalLayerMetrics::metrics(const nn::LayerMetricValues& all,
                                                                        const StepCounts& counts) const {
  std::vector<std::pair<std::string, double>> metrics;
  auto sum = all.sums.begin(), maximum = all.maxima.begin();
  for (const nn::LayerMetric& s : all_) {
    const double value = s.join == nn::Join::kMax ? *maximum++ : *sum++;
    const int64_t count = s.per == nn::Per::kToken         ? counts.tokens
                          : s.per == nn::Per::kValidTarget ? counts.valid_targets
                                                           : 1;
    metrics.emplace_back(s.metric, value / static_cast<double>(std::max<int64_t>(count, 1) * s.divisor));
  }
  return metrics;
}

}  // namespace ashlar::training
