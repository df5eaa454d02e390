#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/base/mesh_axis.h"

namespace ashlar::nn {

/// How the values of ranks, layers and micro-batches become one.
enum class Join : uint8_t { kSum, kMax };
/// What the joined value is divided by.
enum class Per : uint8_t { kStep, kValidTarget, kToken };

/// One number of a training step that layers add to on the device: an auxiliary loss, a count, a largest value. Layers
/// that declare the same metric share it.
struct LayerMetric {
  std::string metric;  ///< the key in metrics.jsonl, without white space
  Join join = Join::kSum;
  Per per = Per::kStep;
  AxisSet replicated_over;  ///< ranks along these have the same value, and the first of them counts; else all count

  bool operator==(const LayerMetric&) const = default;
};

/// Values of declared sums, joined over ranks; sums and maxima apart, each in the order of the list.
struct LayerMetricValues {
  std::vector<double> sums, maxima;
};

class LayerMetrics;

/// A declared sum, as the layer that adds to it keeps it.
class DeclaredMetric {
 public:
  DeclaredMetric() = default;
  DeclaredMetric(const LayerMetrics& sums, int64_t place) : sums_(&sums), place_(place) {}

  /// Adds `value`, fp64 [1]. Only while ctx records: evaluation adds nothing, and a block that is recomputed adds once.
  void add(const Ctx& ctx, const Tensor& value) const;
  /// fp64 [1], for a kernel that adds (or takes the largest) itself; absent where `add` would do nothing.
  MutView slot(const Ctx& ctx) const;

 private:
  const LayerMetrics* sums_ = nullptr;
  int64_t place_ = 0;
};

/// The sums that the layers of a rank declare, and their values of the step so far: fp64 in device memory.
class LayerMetrics {
 public:
  /// The value of a maximum to which nothing was added.
  static constexpr double kLeastMaximum = -1e300;

  LayerMetrics() = default;
  LayerMetrics(const LayerMetrics&) = delete;
  LayerMetrics& operator=(const LayerMetrics&) = delete;

  /// For the constructor of a layer. Bug when another layer has declared the metric otherwise.
  DeclaredMetric declare(const LayerMetric& sum);
  const std::vector<LayerMetric>& declared() const { return declared_; }

  /// After all layers have declared.
  void allocate(const Ctx& ctx);
  /// Before the first micro-batch of a step.
  void begin_step(const Ctx& ctx) const;

  const Tensor& values() const { return values_; }  ///< fp64 [declared().size()]; absent without any

 private:
  std::vector<LayerMetric> declared_;
  Tensor values_;
};

}  // namespace ashlar::nn
