#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layer_metrics.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::training {

/// The union of the sums that the layers of all ranks declare, equal on every rank. A pipeline stage alone knows only
/// those of its own layers.
class GlobalLayerMetrics {
 public:
  /// (all) `own` must outlive it. Bug when ranks declare a metric in different ways.
  GlobalLayerMetrics(const nn::LayerMetrics& own, mesh::Mesh& mesh);

  /// This rank's part of the message of a step, from its own values in the order of its own list.
  nn::LayerMetricValues of_rank(std::span<const double> own) const;
  /// The metrics of a step, from the reduced message.
  std::vector<std::pair<std::string, double>> metrics(const nn::LayerMetricValues& all, const StepCounts& counts) const;

 private:
  std::vector<nn::LayerMetric> all_;  ///< ordered by metric
  std::vector<int64_t> places_;       ///< index of each own sum in that list; -1: another rank reports the same value
};

}  // namespace ashlar::training
