#include "launch/training/expert_load.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace ashlar::training {

std::vector<ExpertLoad> expert_loads(const model::ModelConfig& config, std::span<const double> counts) {
  const auto E = static_cast<size_t>(config.moe.experts);
  std::vector<ExpertLoad> loads;
  for (const int64_t layer : model::expert_layers_of(config)) {
    const std::span<const double> row = counts.subspan(loads.size() * E, E);
    const double total = std::accumulate(row.begin(), row.end(), 0.0), most = *std::ranges::max_element(row);
    loads.push_back({.layer = layer,
                     .counts = {row.begin(), row.end()},
                     .max_over_mean = total > 0 ? most * static_cast<double>(E) / total : 0,
                     .idle = std::ranges::count(row, 0.0)});
  }
  return loads;
}

std::string balance_remedy(const model::MoeConfig& moe) {
  const bool loss = moe.balance != model::Balance::kNone;
  if (loss) return moe.selection_bias ? "raise moe.balance_coef or moe.bias_rate" : "raise moe.balance_coef";
  if (moe.selection_bias) return "raise moe.bias_rate";
  return "nothing balances them, set moe.balance, or moe.selection_bias in a new run";
}

ExpertWatch::ExpertWatch(const model::ModelConfig& config)
    : experts_(config.moe.experts),
      top_k_(config.moe.top_k),
      remedy_(balance_remedy(config.moe)),
      layers_(model::expert_layers_of(config)),
      idle_(layers_.size() * static_cast<size_t>(experts_)),
      crowded_(idle_.size()) {}

std::vector<WarningEvent> ExpertWatch::see(int64_t step, std::span<const double> counts) {
  ASHLAR_CHECK(counts.size() == idle_.size(), "expected ", idle_.size(), " counts, got ", counts.size());
  const auto E = static_cast<size_t>(experts_);
  const double balanced = static_cast<double>(top_k_) / static_cast<double>(experts_);
  const double limit = std::max(kCrowded, 2 * balanced);
  ExpertsIdle idle{.experts = {}, .of = experts_, .step = step, .steps = kIdleSteps, .remedy = remedy_};
  std::vector<WarningEvent> events;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto row = counts.subspan(i / E * E, E);
    const double tokens = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(top_k_);
    const ExpertsIdle::Expert expert{.layer = layers_[i / E], .expert = static_cast<int64_t>(i % E)};
    idle_[i] = counts[i] == 0 && tokens > 0 ? idle_[i] + 1 : 0;
    crowded_[i] = counts[i] > limit * tokens ? crowded_[i] + 1 : 0;
    if (idle_[i] == kIdleSteps) idle.experts.push_back(expert);
    if (crowded_[i] == kCrowdedSteps)
      events.push_back(ExpertCrowded{.layer = expert.layer,
                                     .expert = expert.expert,
                                     .share = counts[i] / tokens,
                                     .balanced = balanced,
                                     .step = step,
                                     .steps = kCrowdedSteps,
                                     .remedy = remedy_});
  }
  if (!idle.experts.empty()) events.push_back(std::move(idle));
  return events;
}

}  // namespace ashlar::training
