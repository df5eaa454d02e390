#pragma once

#include "core/autograd/tape.h"
#include "core/nn/layer_metrics.h"
#include "core/optim/grad_clip.h"

namespace ashlar::testing {

/// Declares sums and adds to them behind each block, as a layer does.
class LayerProbe {
 public:
  explicit LayerProbe(bool first_stage) : first_stage_(first_stage) {}

  void declare(nn::LayerMetrics& sums) {
    squares_ = sums.declare({.metric = "probe_squares", .per = nn::Per::kToken, .replicated_over = Axis::kTensor});
    blocks_ = sums.declare({.metric = "probe_blocks"});
    deepest_ = sums.declare({.metric = "probe_deepest", .join = nn::Join::kMax});
    if (first_stage_) embedded_ = sums.declare({.metric = "probe_embedded", .replicated_over = Axis::kTensor});
  }

  /// x: [N, C] behind so many layers, the same on all tensor ranks.
  void see(const Ctx& ctx, int64_t layers, const Tensor& x) const {
    Tape tape(ctx.backend, ctx.stream);
    Ctx recording = ctx;
    recording.tape = &tape;
    const Tensor value = ctx.empty(DType::kFloat64, {1});
    optim::SquaresTable(ctx, {{.size = x.size()}}).sum(ctx, x, value);
    squares_.add(recording, value);
    ctx.backend.fill({.dst = value.mut_view(), .value = 1}, ctx.stream);
    blocks_.add(recording, value);
    if (layers == 0) embedded_.add(recording, value);
    // Ascending on a stage, so that the last is the largest.
    ctx.backend.fill({.dst = deepest_.slot(recording), .value = static_cast<double>(layers)}, ctx.stream);
  }

 private:
  bool first_stage_;
  nn::DeclaredMetric squares_, blocks_, deepest_, embedded_;
};

}  // namespace ashlar::testing
