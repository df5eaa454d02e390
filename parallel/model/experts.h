#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/nn/layer_metrics.h"
#include "core/ops/expert_rows.h"
#include "core/ops/routing.h"
#include "parallel/model/expert_layout.h"
#include "parallel/model/feed_forward.h"
#include "parallel/tensor/expert_exchange.h"

namespace ashlar::model {

/// Names of the buffers of experts, after the name of the layer's branch ("blocks.3.moe.").
inline constexpr std::string_view kSelectionBiasName = "router.selection_bias";
inline constexpr std::string_view kPreviousCountsName = "router.previous_counts";

/// A mixture of experts: each token is processed by moe.top_k of moe.experts feed-forward networks, and by the shared
/// one if there is one:
///   y = sum over the chosen experts e of w_e FFN_e(x) + [sigmoid(g x)] FFN_shared(x)
/// with the choice and the weights w of RouterRule. With moe.scale_input, FFN_e(w_e x) replaces w_e FFN_e(x). No token
/// is dropped. The router computes in the accumulate dtype. Every tensor rank computes the same choices, and a slice of
/// each expert or whole experts of its own; its gradient of the router's weights is partial. The ranks of an expert
/// group hold different experts (ExpertLayout) and exchange rows (tensor::ExpertTraffic); the shared expert runs while
/// rows are sent. The sum over the choices of a token is added on the token's rank, so the result does not depend on
/// which rank holds an expert. With moe.router_norm the router does not read x but
/// d_model^-0.5 rmsnorm(rows.stream) with a learned gain.
/// Declares the metrics moe_balance (the balance loss, 1 at balance), moe_z (mean squared log-sum-exp of the router's
/// logits) and moe_entropy (entropy of the router's scores, in nats), each the mean over tokens and layers; with an
/// expert axis also moe_crossing, the share of the choices whose expert is on another rank. Adds the choices of each
/// step to nn::ExpertCounts, which moves the selection bias.
/// Sources: Shazeer et al. 2017 (arXiv:1701.06538); Fedus et al. 2021 (arXiv:2101.03961), section 2.2: balance loss;
/// Zoph et al. 2022 (arXiv:2202.08906), eq. 5: z-loss; Wang et al. 2024 (arXiv:2408.15664): selection bias; Dai et al.
/// 2024 (arXiv:2401.06066): shared experts.
class Experts final : public Branch {
 public:
  Experts(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::string_view name() const override { return "moe"; }
  void add_inputs(nn::ParameterStore& store) override;
  void add_outputs(nn::ParameterStore& store) override;
  Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const override;

 private:
  /// Adds a matrix that multiplies whole rows on every tensor rank, with a partial gradient.
  nn::Parameter* small_matrix(nn::ParameterStore& store, const char* name, int64_t out);
  ops::RouteOptions route_options(const Ctx& ctx, int64_t sequence_rows) const;
  /// The choices of a micro-batch and where they are processed.
  struct Chosen {
    Tensor choices;                                        ///< [N, k] kInt32
    ops::ExpertSlots at;                                   ///< this rank's choices by expert
    std::shared_ptr<const tensor::ExpertTraffic> traffic;  ///< null if this rank has all experts
  };
  /// True if tensor ranks hold whole experts of their own.
  bool whole_experts() const { return moe_.tensor == ExpertCut::kExperts; }
  Chosen sorted(const Ctx& ctx, const Tensor& choices) const;
  /// Computes this rank's experts on rows sorted by expert [S, C] -> [S, C].
  Var experts(const Ctx& ctx, const Var& rows, const Tensor& offsets) const;
  /// Returns what the router reads: `x`, which has entered the sharded part, or the norm of the stream.
  Var router_input(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const;
  Var shared(const Ctx& ctx, const Var& x, const Rows& rows) const;

  const ModelConfig& config_;
  const MoeConfig& moe_;
  int64_t layer_, count_row_;
  tensor::TensorParallel tp_;
  ExpertLayout layout_;
  mutable tensor::CountStaging staging_;  ///< no state of the layer: memory kept between micro-batches
  std::string name_;
  nn::Parameter* router_ = nullptr;
  nn::Parameter* router_bias_ = nullptr;
  nn::Parameter* router_gain_ = nullptr;
  nn::Parameter* expert_scale_ = nullptr;
  nn::Parameter* shared_gate_ = nullptr;
  nn::Buffer* selection_bias_ = nullptr;
  nn::Buffer* previous_counts_ = nullptr;
  const nn::ExpertCounts* counts_ = nullptr;
  LinearLayer in_, down_;
  std::unique_ptr<FeedForward> shared_;
  nn::DeclaredMetric balance_, z_, entropy_, crossing_;
};

}  // namespace ashlar::model
