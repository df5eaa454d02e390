#pragma once

#include <cstdint>
#include <vector>

#include "core/autograd/ctx.h"

namespace ashlar::nn {

struct Buffer;

/// The number of choices of each expert in a training step, by all tokens of the global batch (a token whose target is
/// masked counts too, and every choice of a token), and the buffers that follow from these counts after an update.
/// Evaluation counts nothing, and a recomputed block counts once.
///   Layers add the counts of each micro-batch on the device. The caller then adds them over the ranks: kReplicaAxes
/// and the pipeline, not the tensor axis, along which ranks make the same choices. So every rank has the counts of all
/// layers of the model. They are whole numbers in fp64, the same bits on every mesh.
class ExpertCounts {
 public:
  /// A layer of this rank, and its buffers: [E] each, or null.
  struct Layer {
    int64_t row = 0;                   ///< index among the model's layers that have experts
    Buffer* selection_bias = nullptr;  ///< moved by bias_rate * sign(mean of the counts - count)
    double bias_rate = 0;
    Buffer* previous_counts = nullptr;  ///< counts of the previous step
  };

  ExpertCounts() = default;
  ExpertCounts(const ExpertCounts&) = delete;
  ExpertCounts& operator=(const ExpertCounts&) = delete;

  /// Sets the number of layers with experts in the whole model, and of experts of a layer. Every stage calls it.
  void set_size(int64_t layers, int64_t experts);
  void add(const Layer& layer) { layers_.push_back(layer); }

  /// Allocates the counts. Called after all layers were added.
  void allocate(const Ctx& ctx);
  /// Sets all counts to 0. Called before the first micro-batch of each step.
  void begin_step(const Ctx& ctx) const;
  /// Returns the counts of a layer (fp64 [E]), to which a kernel adds. The view is absent if ctx has no tape.
  MutView slot(const Ctx& ctx, int64_t row) const;
  /// Updates the buffers of this rank's layers (BalanceUpdate). `values` must be the sums over all ranks. `clip` (a
  /// ClipState) may skip the update.
  void update(const Ctx& ctx, const ConstView& clip) const;

  const std::vector<Layer>& layers() const { return layers_; }
  const Tensor& values() const { return values_; }  ///< fp64 [layers, E]; undefined in a model without experts
  int64_t size() const { return values_ ? values_.size() : 0; }

 private:
  int64_t num_layers_ = 0, experts_ = 0;
  std::vector<Layer> layers_;
  Tensor values_;
};

}  // namespace ashlar::nn
