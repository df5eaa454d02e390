#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launch/training/run_events.h"
#include "parallel/model/model_config.h"

namespace ashlar::training {

/// How the choices of one step are spread over the experts of a layer.
struct ExpertLoad {
  int64_t layer = 0;
  std::vector<int64_t> counts;  ///< choices of each expert
  double max_over_mean = 0;     ///< largest count divided by the mean; 1 at balance
  int64_t idle = 0;             ///< number of experts that no token chose
  /// Smallest and largest selection bias; absent without one.
  std::optional<std::pair<double, double>> bias_range;
};

/// Returns the load of each layer with experts. `counts`: [expert_layers, experts], as in StepResult::expert_counts.
std::vector<ExpertLoad> expert_loads(const model::ModelConfig& config, std::span<const double> counts);

/// Returns which keys to change so that tokens spread more evenly over the experts.
std::string balance_remedy(const model::MoeConfig& moe);

/// Detects experts that tokens no longer choose, and experts that most tokens choose, from the counts of each step. An
/// expert is reported once, and again only after it was chosen as it should be.
class ExpertWatch {
 public:
  static constexpr int64_t kIdleSteps = 100;    ///< steps in a row without a token, after which an expert is reported
  static constexpr int64_t kCrowdedSteps = 10;  ///< steps in a row with too many tokens, after which it is reported
  static constexpr double kCrowded = 0.5;       ///< share of all tokens; at least twice the share at balance

  explicit ExpertWatch(const model::ModelConfig& config);

  /// Adds the counts of step `step`. Returns the events to report: at most one of idle experts, which names all that
  /// are new, and one for each new expert with too many tokens.
  std::vector<WarningEvent> see(int64_t step, std::span<const double> counts);

 private:
  int64_t experts_, top_k_;
  std::string remedy_;
  std::vector<int64_t> layers_;          // the layers with experts
  std::vector<int64_t> idle_, crowded_;  // steps in a row, by layer and expert
};

}  // namespace ashlar::training
