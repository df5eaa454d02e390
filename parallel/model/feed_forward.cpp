#include "parallel/model/feed_forward.h"

#include "core/ops/activation.h"
#include "parallel/model/init.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

FeedForward::FeedForward(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      layer_(layer),
      tp_(tp),
      slices_(slices_of(config, tp.size(), tp.rank())),
      name_(str_cat("blocks.", layer, ".ffn.")) {}

std::vector<LinearPart> FeedForward::input_parts() const {
  const auto part = [&](const char* name) {
    return LinearPart{.name = name_ + name,
                      .rows = slices_.ffn,
                      .bias = config_.bias.ffn,
                      .init = matrix_init(config_, {.out = config_.d_ff, .in = config_.d_model}),
                      .axes = nn::kTensorSharded};
  };
  if (!config_.ffn.gated) return {part("up")};
  return {part("gate"), part("up")};
}

std::vector<int64_t> FeedForward::input_widths() const {
  return std::vector<int64_t>(config_.ffn.gated ? 2 : 1, slices_.ffn.size);
}

void FeedForward::add_inputs(nn::ParameterStore& store) {
  in_ = input_product(store, config_, name_ + "in", input_parts(), tp_.size());
}

void FeedForward::add_outputs(nn::ParameterStore& store) {
  if (config_.ffn.act == Activation::kXielu) {
    const auto scalar = [&](const char* name, int64_t at, const nn::InitRule& init) {
      return nn::ShardedTensor{.name = name_ + name,
                               .role = nn::Role::kBias,
                               .global_shape = Shape{1},
                               .rows = 1,
                               .cols = 1,
                               .storage_row = at,
                               .init = init,
                               .axes = nn::replicated_and_summed_over(Axis::kTensor)};
    };
    scalars_ = &store.add(
        name_ + "alphas", Shape{2},
        {scalar("alpha_p", 0, xielu_init(kXieluStart)), scalar("alpha_n", 1, xielu_init(kXieluStart - kXieluBeta))});
  }
  down_ = residual_output(store, config_,
                          {.name = name_ + "down",
                           .cols = slices_.ffn,
                           .bias = config_.bias.ffn,
                           .tensor_rank = tp_.rank(),
                           .layer = layer_});
}

Var FeedForward::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  const Var all = tensor::enter(ctx, x, tp);
  if (!config_.ffn.gated && scalars_ == nullptr) return down_(ctx, in_.activated(ctx, all, config_.ffn.act));
  std::vector<Var> inputs = split_columns(ctx, in_(ctx, all), input_widths());
  return forward_from(ctx, inputs, rows);
}

Var FeedForward::forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows&) const {
  const FfnConfig& f = config_.ffn;
  const ops::ActivationOptions act = {.kind = f.act,
                                      .clamp = f.clamp.value_or(0),
                                      .linear_offset = f.linear_offset,
                                      .scalars = scalars_ == nullptr ? nullptr : &scalars_->weight};
  return down_(ctx, ops::activation(ctx, inputs[0], f.gated ? &inputs[1] : nullptr, act));
}

}  // namespace ashlar::model
