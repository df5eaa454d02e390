#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// Operation that combines the values of ranks, layers and micro-batches.
enum class Join : uint8_t { kSum, kMax };
/// The divisor of the combined value.
enum class Per : uint8_t { kStep, kValidTarget, kToken };

/// A statistic of a training step that layers accumulate on the device, e.g. an auxiliary loss, a count or a maximum.
/// Layers that declare the same metric share it.
struct LayerMetric {
  std::string metric;  ///< the key in metrics.jsonl, without white space
  Join join = Join::kSum;
  Per per = Per::kStep;
  AxisSet replicated_over;  ///< axes over which ranks have the same value, so that only the first counts

  bool operator==(const LayerMetric&) const = default;
};

/// Values of declared sums, reduced over ranks; sums and maxima separately, each in declaration order.
struct LayerMetricValues {
  std::vector<double> sums, maxima;
};

class LayerMetrics;

/// A layer's handle on a declared sum.
class DeclaredMetric {
 public:
  DeclaredMetric() = default;
  DeclaredMetric(const LayerMetrics& sums, int64_t place) : sums_(&sums), place_(place) {}

  /// Adds `value`, fp64 [1]. Only while ctx records: evaluation adds nothing, and a recomputed block adds once.
  void add(const Ctx& ctx, const Tensor& value) const;
  /// The view fp64 [1] for a kernel that itself adds to the value (or takes the maximum). Absent if `add` would do
  /// nothing.
  MutView slot(const Ctx& ctx) const;

 private:
  const LayerMetrics* sums_ = nullptr;
  int64_t place_ = 0;
};

/// The sums declared by the layers of a rank, and their values in the current step: fp64 in device memory.
class LayerMetrics {
 public:
  /// Initial value of a maximum.
  static constexpr double kLeastMaximum = -1e300;

  LayerMetrics() = default;
  LayerMetrics(const LayerMetrics&) = delete;
  LayerMetrics& operator=(const LayerMetrics&) = delete;

  /// Called in the constructor of a layer. Bug when another layer has declared the metric differently.
  DeclaredMetric declare(const LayerMetric& sum);
  const std::vector<LayerMetric>& declared() const { return declared_; }

  /// Called after all layers have declared.
  void allocate(const Ctx& ctx);
  /// Called before the first micro-batch of a step.
  void begin_step(const Ctx& ctx) const;

  const Tensor& values() const { return values_; }  ///< fp64 [declared().size()]; absent if none is declared

 private:
  std::vector<LayerMetric> declared_;
  Tensor values_;
};

}  // namespace ashlar::nn
