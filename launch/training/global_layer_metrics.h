#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layer_metrics.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::training {

/// The union of the sums that the layers of all ranks declare. It is equal on every rank, although a pipeline stage
/// knows only the sums of its own layers.
class GlobalLayerMetrics {
 public:
  /// (all) `own` must outlive it. Bug when ranks declare a metric in different ways.
  GlobalLayerMetrics(const nn::LayerMetrics& own, mesh::Mesh& mesh);

  /// Returns this rank's part of the message of a step. `own`: its values, in the order of its own list.
  nn::LayerMetricValues of_rank(std::span<const double> own) const;
  /// The metrics of a step, from the reduced message.
  std::vector<std::pair<std::string, double>> metrics(const nn::LayerMetricValues& all, const StepCounts& counts) const;

 private:
  std::vector<nn::LayerMetric> all_;  ///< ordered by metric
  std::vector<int64_t> places_;       ///< index of each own sum in that list; -1: another rank reports the same value
};

}  // namespace ashlar::training
