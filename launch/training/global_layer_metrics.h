#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layer_metrics.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::training {

/// The sums that the layers of all ranks declare, as one list that is the same on every rank: a stage of a pipeline
/// knows those of its own layers only.
class GlobalLayerMetrics {
 public:
  /// (all) `own` must outlive it. Bug when ranks have declared a metric in different ways.
  GlobalLayerMetrics(const nn::LayerMetrics& own, mesh::Mesh& mesh);

  /// This rank's part of the message of a step, from its own values in the order of its layers' list.
  nn::LayerMetricValues of_rank(std::span<const double> own) const;
  /// The metrics of a step, from the message of all ranks.
  std::vector<std::pair<std::string, double>> metrics(const nn::LayerMetricValues& all, const StepCounts& counts) const;

 private:
  std::vector<nn::LayerMetric> all_;  ///< ordered by metric
  std::vector<int64_t> places_;  ///< of each own sum in that list; -1: another rank has the same value and tells it
};

}  // namespace ashlar::training
