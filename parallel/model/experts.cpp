#include "parallel/model/experts.h"

#include <cmath>
#include <functional>
#include <utility>

#include "core/autograd/recompute.h"
#include "core/ops/activation.h"
#include "core/ops/norm.h"
#include "core/ops/residual.h"
#include "parallel/model/init.h"
#include "parallel/model/norm_layer.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

namespace {

ConstView view_of(const nn::Buffer* buffer) { return buffer == nullptr ? ConstView{} : view_or_none(buffer->values); }

}  // namespace

Experts::Experts(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp)
    : config_(config),
      moe_(config.moe),
      layer_(layer),
      count_row_(config.expert_layers_before(layer)),
      tp_(tp),
      layout_(expert_layout(config.moe, tp)),
      name_(str_cat("blocks.", layer, ".moe.")) {
  if (moe_.shared_d_ff > 0)
    shared_ = std::make_unique<FeedForward>(
        config, tp, FeedForward::Place{.layer = layer, .name = "moe.shared", .d_ff = moe_.shared_d_ff});
}

nn::Parameter* Experts::small_matrix(nn::ParameterStore& store, const char* name, int64_t out) {
  const int64_t C = config_.d_model;
  const nn::ShardedTensor tensor{.name = str_cat(name_, name, ".weight"),
                                 .role = nn::Role::kMatrix,
                                 .global_shape = {out, C},
                                 .rows = out,
                                 .cols = C,
                                 .init = matrix_init(config_, {.out = out, .in = C}),
                                 .axes = nn::replicated_and_summed_over(Axis::kTensor)};
  return &store.add(tensor.name, {out, C}, {tensor});
}

void Experts::add_inputs(nn::ParameterStore& store) {
  const auto metric = [&](const char* key) {
    return store.sums().declare(
        {.metric = key, .per = nn::Per::kToken, .divisor = config_.expert_layers(), .replicated_over = Axis::kTensor});
  };
  balance_ = metric("moe_balance");
  z_ = metric("moe_z");
  entropy_ = metric("moe_entropy");
  if (tp_.expert_size() > 1) {
    crossing_ = store.sums().declare({.metric = "moe_crossing",
                                      .per = nn::Per::kToken,
                                      .divisor = config_.expert_layers() * moe_.top_k,
                                      .replicated_over = whole_experts() ? AxisSet() : AxisSet(Axis::kTensor)});
  }
  router_ = small_matrix(store, "router", moe_.experts);
  const auto of_experts = [&](const char* name, nn::Role role, const nn::InitRule& init) {
    const nn::ShardedTensor tensor{.name = name_ + name,
                                   .role = role,
                                   .global_shape = Shape{moe_.experts},
                                   .rows = 1,
                                   .cols = moe_.experts,
                                   .init = init,
                                   .axes = nn::replicated_and_summed_over(Axis::kTensor)};
    return &store.add(tensor.name, Shape{moe_.experts}, {tensor});
  };
  if (moe_.router_bias) router_bias_ = of_experts("router.bias", nn::Role::kBias, {.rule = "0"});
  if (moe_.expert_scale) expert_scale_ = of_experts("expert_scale", nn::Role::kNorm, {.value = 1, .rule = "1"});
  if (moe_.router_norm)
    router_gain_ = stream_vector(store, name_ + "router.scale", config_.d_model, {.value = 1, .rule = "1"}, tp_);
  const auto buffer = [&](std::string_view name, nn::BufferUse use) {
    return &store.add_buffer(name_ + std::string(name), Shape{moe_.experts}, use);
  };
  if (moe_.selection_bias) selection_bias_ = buffer(kSelectionBiasName, nn::BufferUse::kModel);
  if (moe_.balance == Balance::kPrevious) previous_counts_ = buffer(kPreviousCountsName, nn::BufferUse::kTraining);
  counts_ = &store.expert_counts();
  store.expert_counts().add({.row = count_row_,
                             .selection_bias = selection_bias_,
                             .bias_rate = moe_.bias_rate,
                             .previous_counts = previous_counts_});
  std::vector<LinearPart> parts;
  for (int64_t e = layout_.own.begin; e < layout_.own.end; ++e) {
    const auto part = [&](const char* name) {
      parts.push_back({.name = str_cat(name_, "experts.", e, ".", name),
                       .rows = layout_.width,
                       .bias = config_.bias.ffn,
                       .init = matrix_init(config_, {.out = moe_.d_ff, .in = config_.d_model}),
                       .axes = expert_axes(tp_, Axis::kTensor),
                       .role = nn::Role::kExpert});
    };
    if (config_.ffn.gated) part("gate");
    part("up");
  }
  in_ = whole_experts() ? LinearLayer(store, name_ + "experts.in", nn::DimShard::whole(config_.d_model), parts)
                        : input_product(store, config_, name_ + "experts.in", parts, tp_.size());
  if (shared_ != nullptr) shared_->add_inputs(store);
  if (moe_.shared_gate) shared_gate_ = small_matrix(store, "shared_gate", 1);
}

void Experts::add_outputs(nn::ParameterStore& store) {
  std::vector<LinearPart> parts;
  for (int64_t e = layout_.own.begin; e < layout_.own.end; ++e) {
    parts.push_back(residual_part(config_, {.name = str_cat(name_, "experts.", e, ".down"),
                                            .cols = layout_.width,
                                            .bias = config_.bias.ffn,
                                            .tensor_rank = whole_experts() ? 0 : tp_.rank(),
                                            .layer = layer_,
                                            .role = nn::Role::kExpert}));
    parts.back().axes = expert_axes(tp_, whole_experts() ? AxisSet(Axis::kTensor) : AxisSet());
  }
  down_ = LinearLayer(store, name_ + "experts.down", layout_.width, parts);
  if (shared_ != nullptr) shared_->add_outputs(store);
}

ops::RouteOptions Experts::route_options(const Ctx& ctx, int64_t sequence_rows) const {
  const auto layers = static_cast<double>(config_.expert_layers());
  return {.top_k = moe_.top_k,
          .rule = moe_.rule,
          .selection_bias = view_of(selection_bias_),
          .expert_scale = expert_scale_ == nullptr ? nullptr : &expert_scale_->weight,
          .balance = {.sequence_rows = sequence_rows,
                      .previous_counts = view_of(previous_counts_),
                      .factor = moe_.balance == Balance::kNone ? 0 : moe_.balance_coef / layers,
                      .z_factor = moe_.z_coef / layers,
                      .loss = balance_.slot(ctx),
                      .z = z_.slot(ctx),
                      .entropy = entropy_.slot(ctx),
                      .counts = counts_->slot(ctx, count_row_),
                      .adds_gradient = tp_.rank() == 0}};
}

Experts::Chosen Experts::sorted(const Ctx& ctx, const Tensor& choices) const {
  const comm::Range experts = layout_.of_group();
  Chosen chosen{
      .choices = choices, .at = ops::sort_choices(ctx, choices, experts.begin, experts.size()), .traffic = nullptr};
  if (tp_.expert_size() == 1) return chosen;
  chosen.traffic = tensor::exchange_counts(ctx, *tp_.expert_group, chosen.at.offsets, layout_.of_rank, staging_);
  chosen.at.rows = chosen.traffic->sorted_rows;  // which the host knows now
  return chosen;
}

Var Experts::experts(const Ctx& ctx, const Var& rows, const Tensor& offsets) const {
  std::vector<Var> inputs = split_columns(ctx, in_.grouped(ctx, rows, offsets),
                                          std::vector<int64_t>(config_.ffn.gated ? 2 : 1, layout_.width.size));
  return down_.grouped(ctx, ffn_activation(ctx, inputs, config_.ffn), offsets);
}

Var Experts::router_input(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  if (router_gain_ == nullptr) return x;
  const NormVariant variant{.type = NormType::kRmsNorm, .eps = config_.norm.variant.eps};
  const Var normed = ops::norm(ctx, *rows.stream, {.gamma = &router_gain_->weight}, variant);
  const double scale = 1 / std::sqrt(static_cast<double>(config_.d_model));
  return tensor::enter(ctx, ops::residual(ctx, nullptr, {.value = normed, .scale = scale}, nullptr), tp);
}

Var Experts::shared(const Ctx& ctx, const Var& x, const Rows& rows) const {
  const Var y = shared_->of_entered(ctx, x, rows);
  if (shared_gate_ == nullptr) return y;
  // A router with one expert gives the weight sigmoid(g x) of each row, and slot n to row n.
  const ops::Routing gate = ops::route(ctx, ops::router_logits(ctx, x, shared_gate_->weight, nullptr),
                                       {.top_k = 1, .rule = {.score = RouterScore::kSigmoid, .renormalize = false}});
  return ops::combine(ctx, y, ops::sort_choices(ctx, gate.choices, 0, 1), &gate.weights);
}

Var Experts::forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const {
  const Var all = tensor::enter(ctx, x, tp);
  // 1. Choose. A second run (recompute) takes the choices and counts of the first.
  const bool again = ctx.kept != nullptr && ctx.kept->second_run();
  Chosen chosen = again ? ctx.kept->take<Chosen>() : Chosen{};
  ops::RouteOptions options = route_options(ctx, rows.batch.T);
  options.forced = chosen.choices;
  const Var logits = ops::router_logits(ctx, router_input(ctx, all, rows, tp), router_->weight,
                                        router_bias_ == nullptr ? nullptr : &router_bias_->weight);
  const ops::Routing routing = ops::route(ctx, logits, options);
  if (!again) chosen = sorted(ctx, routing.choices);
  if (ctx.kept != nullptr && !again) ctx.kept->keep(chosen);
  if (chosen.traffic) crossing_.add(ctx, static_cast<double>(chosen.traffic->crossing()));

  // 2. Send rows to experts and compute the shared expert meanwhile.
  std::function<Var()> arrive;
  {
    const Var sent = ops::dispatch(ctx, all, chosen.at, moe_.scale_input ? &routing.weights : nullptr);
    arrive = chosen.traffic ? tensor::start_to_experts(ctx, sent, chosen.traffic) : [sent] { return sent; };
  }
  const Var beside = shared_ == nullptr ? Var{} : shared(ctx, all, rows);

  // 3. Compute the experts of this rank, and add the results of each token's experts.
  Var y = experts(ctx, std::exchange(arrive, nullptr)(), chosen.traffic ? chosen.traffic->offsets : chosen.at.offsets);
  if (chosen.traffic) y = tensor::from_experts(ctx, y, chosen.traffic);
  y = ops::combine(ctx, y, chosen.at, moe_.scale_input ? nullptr : &routing.weights);
  if (shared_ == nullptr) return y;
  const ops::Branch both = {.value = beside};
  return ops::residual(ctx, nullptr, {.value = y}, &both);
}

}  // namespace ashlar::model
