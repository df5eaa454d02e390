#include "parallel/model/experts_beside_ffn.h"

#include "core/ops/residual.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

ExpertsBesideFfn::ExpertsBesideFfn(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      layer_(layer),
      tp_(tp),
      ffn_(config, tp, FeedForward::Place{.layer = layer, .d_ff = config.d_ff}),
      experts_(config, layer, tp) {}

void ExpertsBesideFfn::add_inputs(nn::ParameterStore& store) {
  ffn_.add_inputs(store);
  experts_in_ = NormLayer(store, str_cat("blocks.", layer_, ".moe.norm_in"), config_, tp_);
  experts_.add_inputs(store);
}

void ExpertsBesideFfn::add_outputs(nn::ParameterStore& store) {
  ffn_.add_outputs(store);
  ffn_out_ = NormLayer(store, str_cat("blocks.", layer_, ".ffn.norm_out"), config_, tp_);
  experts_.add_outputs(store);
  experts_out_ = NormLayer(store, str_cat("blocks.", layer_, ".moe.norm_out"), config_, tp_);
}

Var ExpertsBesideFfn::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  const Var dense = tensor::exit(ctx, ffn_.forward(ctx, x, rows, tp), tp);
  const Var routed = tensor::exit(ctx, experts_.forward(ctx, experts_in_(ctx, *rows.stream), rows, tp), tp);
  const ops::Branch second{.value = experts_out_(ctx, routed)};
  return ops::residual(ctx, nullptr, {.value = ffn_out_(ctx, dense)}, &second);
}

}  // namespace ashlar::model
