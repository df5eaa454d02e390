#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layer_metrics.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::training {

/// The union of the metrics that the layers of all ranks declare. It is equal on every rank, although a pipeline stage
/// knows only the metrics of its own layers.
class GlobalLayerMetrics {
 public:
  /// Called by all ranks. `own`: the metrics declared by this rank's layers. Throws Bug if ranks declare the same
  /// metric with different definitions.
  GlobalLayerMetrics(const nn::LayerMetrics& own, mesh::Mesh& mesh);

  /// Returns this rank's values for StepMessage::layers. `own`: the values of this rank's metrics, in the order of
  /// their declaration.
  nn::LayerMetricValues of_rank(std::span<const double> own) const;
  /// Returns the metrics of a step with their names. `all`: the values of StepMessage::layers, reduced over all ranks.
  std::vector<std::pair<std::string, double>> metrics(const nn::LayerMetricValues& all, const StepCounts& counts) const;

 private:
  std::vector<nn::LayerMetric> all_;  ///< the union, ordered by name
  std::vector<int64_t> places_;       ///< index in all_ of each own metric; -1: another rank reports the same value
};

}  // namespace ashlar::training
