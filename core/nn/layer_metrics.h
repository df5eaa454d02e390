#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// The operation that combines the values of ranks, layers and micro-batches.
enum class Join : uint8_t { kSum, kMax };
/// What the combined value is divided by: 1 (kStep), the number of valid targets in the step (kValidTarget), or the
/// number of tokens in the step (kToken).
enum class Per : uint8_t { kStep, kValidTarget, kToken };

/// A metric of a training step that layers accumulate on the device, e.g. an auxiliary loss, a count or a maximum.
/// Layers that declare the same metric share one value.
struct LayerMetric {
  std::string metric;  ///< the key in metrics.jsonl, without white space
  Join join = Join::kSum;
  Per per = Per::kStep;
  int64_t divisor = 1;      ///< the value is also divided by this, e.g. by the number of layers that add to it
  AxisSet replicated_over;  ///< ranks along these axes have equal values, of which only one is counted

  bool operator==(const LayerMetric&) const = default;
};

/// Values of the declared metrics, reduced over ranks. Sums and maxima are separate lists, each in declaration order.
struct LayerMetricValues {
  std::vector<double> sums, maxima;
};

class LayerMetrics;

/// Handle with which a layer adds to a metric that it has declared.
class DeclaredMetric {
 public:
  DeclaredMetric() = default;
  DeclaredMetric(const LayerMetrics& sums, int64_t place) : sums_(&sums), place_(place) {}

  /// Adds `value` (fp64 [1]) to the metric if ctx has a tape, else does nothing. Evaluation and the first of the two
  /// runs of a recomputed block have no tape, so evaluation adds nothing, and a recomputed block adds only once.
  void add(const Ctx& ctx, const Tensor& value) const;
  void add(const Ctx& ctx, double value) const;  ///< the same for a value that the host knows
  /// Returns the view (fp64 [1]) of the metric's value, for a kernel that adds to it or updates the maximum. The view
  /// is absent if ctx has no tape.
  MutView slot(const Ctx& ctx) const;

 private:
  const LayerMetrics* sums_ = nullptr;
  int64_t place_ = 0;
};

/// The metrics that the layers of a rank have declared, and their values in the current step (fp64, in device memory).
class LayerMetrics {
 public:
  /// Value of a maximum at the start of a step.
  static constexpr double kLeastMaximum = -1e300;

  LayerMetrics() = default;
  LayerMetrics(const LayerMetrics&) = delete;
  LayerMetrics& operator=(const LayerMetrics&) = delete;

  /// Declares a metric. Called by the constructor of a layer. Throws a Bug if another layer has declared the metric
  /// differently.
  DeclaredMetric declare(const LayerMetric& sum);
  const std::vector<LayerMetric>& declared() const { return declared_; }

  /// Allocates the values. Called after all layers have declared their metrics.
  void allocate(const Ctx& ctx);
  /// Resets the values. Called before the first micro-batch of each step.
  void begin_step(const Ctx& ctx) const;

  const Tensor& values() const { return values_; }  ///< fp64 [declared().size()]; undefined if no metric is declared

 private:
  std::vector<LayerMetric> declared_;
  Tensor values_;
};

}  // namespace ashlar::nn
