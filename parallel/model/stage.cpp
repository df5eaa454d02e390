#include "parallel/model/stage.h"

#include "core/autograd/recompute.h"
#include "core/ops/embedding.h"

namespace ashlar::model {

namespace {

/// A table of `rows` named rows in storage padded to `storage_rows`.
nn::Parameter* table(nn::ParameterStore& store, const std::string& name, nn::Role role, int64_t rows,
                     int64_t storage_rows, int64_t cols, const nn::InitRule& init) {
  const nn::Piece piece{
      .name = name, .role = role, .global_shape = {rows, cols}, .rows = rows, .cols = cols, .init = init};
  return &store.add(name, {storage_rows, cols}, {piece});
}

}  // namespace

Stage::Stage(nn::ParameterStore& store, const ModelConfig& config, const StageRange& range) : config_(config) {
  const int64_t V = config_.vocab_size, V_padded = config_.vocab_padded(), C = config_.d_model;
  if (range.embedding) {
    tokens_ = table(store, "embed.tokens.weight", nn::Role::kEmbedding, V, V_padded, C, table_init(config_));
    if (config_.pos.type == PosType::kLearned) {
      const int64_t P = config_.pos.max_positions;
      positions_ = table(store, "embed.positions.weight", nn::Role::kPosition, P, P, C, table_init(config_));
    }
  }
  for (int64_t i = range.first_layer; i < range.last_layer; ++i)
    blocks_.push_back(std::make_unique<Block>(store, config_, i));
  if (range.head) {
    if (config_.norm.final) final_norm_.emplace(store, "norm_final", config_);
    ASHLAR_CHECK(!config_.tied || range.embedding, "a tied head on a stage of its own");
    head_ = config_.tied
                ? tokens_
                : table(store, "head.weight", nn::Role::kMatrix, V, V_padded, C, matrix_init(config_, V, C, false));
    if (config_.bias.lm_head) {
      const nn::Piece piece{.name = "head.bias",
                            .role = nn::Role::kBias,
                            .global_shape = Shape{V},
                            .rows = 1,
                            .cols = V,
                            .init = {.rule = "0"}};
      head_bias_ = &store.add("head.bias", Shape{V_padded}, {piece});
    }
  }
}

void Stage::make_tables(const Ctx& ctx, int64_t positions) {
  if (config_.pos.type == PosType::kRope)
    tables_ = ops::RopeTables::make(ctx, positions, config_.rope.dims, config_.rope.base);
}

Var Stage::embed(const Ctx& ctx, const BatchView& batch) const {
  ASHLAR_CHECK(tokens_ != nullptr, "this stage has no embedding");
  const Var x = ops::embedding(ctx, batch.rows(), {.ids = batch.ids, .order = batch.order}, tokens_->weight, 1.0,
                               {.ids = batch.positions, .order = batch.position_order},
                               positions_ == nullptr ? nullptr : &positions_->weight);
  const ops::Branch branch{
      .value = x, .dropout = config_.dropout.embed, .site = static_cast<uint32_t>(site_of("embed.dropout"))};
  return ops::residual(ctx, nullptr, branch, nullptr);
}

Var Stage::blocks(const Ctx& ctx, const Var& x, const BatchView& batch) const {
  Var h = x;
  for (const auto& block : blocks_) {
    const auto body = [&block = *block, batch, this](const Ctx& c, const Var& in) {
      return block.forward(c, in, batch, tables_);
    };
    h = ctx.recompute == Recompute::kBlock && ctx.tape != nullptr ? recompute(ctx, h, body) : body(ctx, h);
  }
  return h;
}

void Stage::loss(const Ctx& ctx, const Var& x, const BatchView& batch, LossStats& stats) const {
  ASHLAR_CHECK(head_ != nullptr, "this stage has no head");
  const Var h = final_norm_ ? (*final_norm_)(ctx, x) : x;
  ops::head_loss(ctx, h, head_->weight, head_bias_ == nullptr ? nullptr : &head_bias_->weight,
                 {.targets = batch.targets, .vocab = config_.vocab_size, .z_coef = config_.loss.z_coef}, stats);
}

Tensor Stage::logits(const Ctx& ctx, const Tensor& x) const {
  ASHLAR_CHECK(head_ != nullptr && ctx.tape == nullptr, "logits are computed on the last stage, unrecorded");
  const Var h = final_norm_ ? (*final_norm_)(ctx, Var{.value = x}) : Var{.value = x};
  return ops::logits(ctx, h.value, head_->weight, head_bias_ == nullptr ? nullptr : &head_bias_->weight);
}

Tensor Stage::decode(const Ctx& ctx, const BatchView& batch, KvCache& cache) const {
  Tensor x = embed(ctx, batch).value;
  for (const auto& block : blocks_) x = block->decode(ctx, x, batch, tables_, cache);
  cache.length += batch.T;
  return x;
}

}  // namespace ashlar::model
