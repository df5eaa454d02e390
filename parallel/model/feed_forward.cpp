#include "parallel/model/feed_forward.h"

#include "core/ops/activation.h"
#include "parallel/model/init.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

Var ffn_activation(const Ctx& ctx, std::span<Var> inputs, const FfnConfig& f, Weight* scalars) {
  return ops::activation(
      ctx, inputs[0], f.gated ? &inputs[1] : nullptr,
      {.kind = f.act, .clamp = f.clamp.value_or(0), .linear_offset = f.linear_offset, .scalars = scalars});
}

FeedForward::FeedForward(const ModelConfig& config, const tensor::TensorParallel& tp, const Place& place)
    : config_(config),
      place_(place),
      tp_(tp),
      width_(nn::DimShard::part(place.d_ff, tp.size(), tp.rank())),
      name_(str_cat("blocks.", place.layer, ".", place.name, ".")) {}

std::vector<LinearPart> FeedForward::input_parts() const {
  const auto part = [&](const char* name) {
    return LinearPart{.name = name_ + name,
                      .rows = width_,
                      .bias = config_.bias.ffn,
                      .init = matrix_init(config_, {.out = place_.d_ff, .in = config_.d_model}),
                      .axes = nn::kTensorSharded};
  };
  if (!config_.ffn.gated) return {part("up")};
  return {part("gate"), part("up")};
}

std::vector<int64_t> FeedForward::input_widths() const {
  return std::vector<int64_t>(config_.ffn.gated ? 2 : 1, width_.size);
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
                           .cols = width_,
                           .bias = config_.bias.ffn,
                           .tensor_rank = tp_.rank(),
                           .layer = place_.layer});
}

Var FeedForward::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  return of_entered(ctx, tensor::enter(ctx, x, tp), rows);
}

Var FeedForward::of_entered(const Ctx& ctx, const Var& all, const Rows& rows) const {
  if (!config_.ffn.gated && scalars_ == nullptr) return down_(ctx, in_.activated(ctx, all, config_.ffn.act));
  std::vector<Var> inputs = split_columns(ctx, in_(ctx, all), input_widths());
  return forward_from(ctx, inputs, rows);
}

Var FeedForward::forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows&) const {
  return down_(ctx, ffn_activation(ctx, inputs, config_.ffn, scalars_ == nullptr ? nullptr : &scalars_->weight));
}

}  // namespace ashlar::model
