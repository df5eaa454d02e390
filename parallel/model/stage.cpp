#include "parallel/model/stage.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/recompute.h"
#include "core/ops/embedding.h"
#include "core/ops/linear.h"
#include "core/ops/residual.h"
#include "core/ops/take_rows.h"
#include "parallel/model/attention_options.h"
#include "parallel/model/init.h"
#include "parallel/model/position_tables.h"
#include "parallel/model/t5_bias_table.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

namespace {

/// Adds a matrix that every tensor rank holds completely.
nn::Parameter* projection(nn::ParameterStore& store, const char* name, const Shape& shape, const ModelConfig& config,
                          const nn::TensorAxes& axes) {
  const nn::ShardedTensor tensor{.name = name,
                                 .role = nn::Role::kMatrix,
                                 .global_shape = shape,
                                 .rows = shape[0],
                                 .cols = shape[1],
                                 .init = matrix_init(config, {.out = shape[0], .in = shape[1]}),
                                 .axes = axes};
  return &store.add(name, shape, {tensor});
}

/// Adds a table, whose storage is padded to `storage_rows` rows.
nn::Parameter* table(nn::ParameterStore& store, const nn::ShardedTensor& tensor, int64_t storage_rows) {
  return &store.add(tensor.name, {storage_rows, tensor.cols}, {tensor});
}

}  // namespace

Stage::Stage(nn::ParameterStore& store, const ModelConfig& config, const StageRange& range,
             const tensor::TensorParallel& tp)
    : config_(config),
      range_(range),
      tp_(tp),
      slices_(slices_of(config, tp.size(), tp.rank())),
      scores_(score_change(config)) {
  const int64_t V = config_.vocab_size, C = config_.d_model, E = config_.table_width();
  const nn::DimShard& vocab = slices_.vocab;
  // Vocabulary rows in this rank's slice, without padding.
  const int64_t V_loc = std::clamp<int64_t>(V - vocab.begin, 0, vocab.size);
  const bool two_copies = config_.tied && range.embedding != range.head;
  nn::TensorAxes table_axes = two_copies ? nn::replicated_and_summed_over(Axis::kPipeline) : nn::TensorAxes{};
  table_axes.sharded_over = Axis::kTensor;
  const auto vocabulary = [&](const std::string& name, nn::Role role, const nn::InitRule& init) {
    return nn::ShardedTensor{.name = name,
                             .role = role,
                             .global_shape = {V, E},
                             .global_row = vocab.begin,
                             .rows = V_loc,
                             .cols = E,
                             .init = init,
                             .axes = table_axes};
  };
  const auto tokens = [&] {
    return table(store, vocabulary("embed.tokens.weight", nn::Role::kEmbedding, table_init(config_)), vocab.size);
  };
  if (range.embedding) {
    tokens_ = tokens();
    // The projection multiplies partial sums, so each rank has a partial sum of its gradient.
    if (config_.embed_dim)
      project_in_ =
          projection(store, "embed.project.weight", {C, E}, config_, nn::replicated_and_summed_over(Axis::kTensor));
    if (config_.pos.type == PosType::kLearned && tp.rank() == 0) {
      const int64_t P = config_.pos.max_positions + config_.pos.learned_offset;
      positions_ = table(store,
                         {.name = "embed.positions.weight",
                          .role = nn::Role::kPosition,
                          .global_shape = {P, C},
                          .rows = P,
                          .cols = C,
                          .init = table_init(config_)},
                         P);
    }
    if (config_.norm.embed) embed_norm_.emplace(store, "embed.norm", config_, tp);
  }
  if (shares_t5_bias(config_) && range.last_layer > range.first_layer) {
    const bool all_layers = range.last_layer - range.first_layer == config_.n_layers;
    t5_bias_ = t5_bias_table(store, config_,
                             {.name = "embed.t5_bias.weight",
                              .axes = all_layers ? nn::TensorAxes{} : nn::replicated_and_summed_over(Axis::kPipeline)},
                             slices_.heads);
  }
  store.expert_counts().set_size(config_.expert_layers(), config_.moe.experts);
  for (int64_t i = range.first_layer; i < range.last_layer; ++i)
    blocks_.push_back(std::make_unique<Block>(store, config_, i, tp));
  if (!range.head) return;
  if (config_.norm.final) final_norm_.emplace(store, "norm_final", config_, tp);
  if (config_.embed_dim) {
    project_out_ = projection(store, "head.project.weight", {E, C}, config_, tp.stream_axes());
  }
  if (config_.tied) {
    head_ = range.embedding ? tokens_ : tokens();
  } else {
    head_ = table(store, vocabulary("head.weight", nn::Role::kMatrix, matrix_init(config_, {.out = V, .in = E})),
                  vocab.size);
  }
  if (config_.bias.lm_head) {
    const nn::ShardedTensor tensor{.name = "head.bias",
                                   .role = nn::Role::kBias,
                                   .global_shape = Shape{V},
                                   .global_col = vocab.begin,
                                   .rows = 1,
                                   .cols = V_loc,
                                   .init = {.rule = "0"},
                                   .axes = nn::kTensorSharded};
    head_bias_ = &store.add("head.bias", Shape{vocab.size}, {tensor});
  }
}

void Stage::make_tables(const Ctx& ctx, int64_t positions) {
  if (config_.pos.type == PosType::kRope) tables_.make(ctx, config_, range_.first_layer, range_.last_layer, positions);
  if (config_.pos.type == PosType::kSinusoidal && range_.embedding && tp_.rank() == 0)
    sinusoidal_ = ops::sinusoidal_table(ctx, positions + config_.pos.learned_offset, config_.d_model);
  if (config_.pos.type == PosType::kAlibi) {
    // Slopes are taken by global head number, so that they do not depend on the tensor ranks.
    const std::vector<double> all = alibi_slopes(config_);
    const auto first = all.begin() + slices_.heads.begin;
    alibi_slopes_ = ctx.upload_numbers({first, first + slices_.heads.size}, Shape{slices_.heads.size});
    scores_.alibi_slopes = alibi_slopes_.view();
  }
  if (config_.pos.type == PosType::kT5Bias) {
    t5_buckets_ = ops::id_list(ctx, t5_buckets(config_));
    scores_.t5_buckets = t5_buckets_.view();
  }
  if (range_.head && !config_.masked_ids.empty()) masked_ids_ = ops::id_list(ctx, config_.masked_ids);
}

Var Stage::lookup(const Ctx& ctx, const BatchView& batch, const tensor::TensorParallel& tp) const {
  ASHLAR_CHECK(tokens_ != nullptr, "this stage has no embedding");
  ops::EmbeddingOptions options = {.N = batch.rows(),
                                   .tokens = {.ids = batch.ids, .order = batch.order},
                                   .positions = {.ids = batch.positions, .order = batch.position_order},
                                   .scale = config_.embed_scale,
                                   .first_id = slices_.vocab.begin,
                                   .first_position = -config_.pos.learned_offset};
  const auto normed = [&](const Var& sum) {
    const Var rows = tensor::exit(ctx, sum, tp);
    return embed_norm_ ? (*embed_norm_)(ctx, rows) : rows;
  };
  if (project_in_ == nullptr) {
    if (sinusoidal_) options.fixed_positions = sinusoidal_.view();
    return normed(ops::embedding(ctx, options, tokens_->weight, positions_ == nullptr ? nullptr : &positions_->weight));
  }
  // Positions are added to the projected rows, before the partial sums are reduced.
  Var part = ops::whole_linear(ctx, ops::embedding(ctx, options, tokens_->weight, nullptr), project_in_->weight);
  if (sinusoidal_) options.fixed_positions = sinusoidal_.view();
  if (positions_ != nullptr || sinusoidal_) {
    const ops::Branch positions{
        .value = ops::position_embedding(ctx, options, positions_ == nullptr ? nullptr : &positions_->weight)};
    part = ops::residual(ctx, nullptr, {.value = part}, &positions);
  }
  return normed(part);
}

Var Stage::embed(const Ctx& ctx, const BatchView& batch) const {
  const ops::Branch branch{.value = lookup(ctx, batch, tp_),
                           .dropout = config_.dropout.embed,
                           .rng_stream = static_cast<uint32_t>(hash64("embed.dropout"))};
  return ops::residual(tensor::with_local_rows(ctx, tp_.local_rows(batch.rows()), tp_), nullptr, branch, nullptr);
}

void Stage::check_positions(int64_t positions) const {
  ASHLAR_CHECK(!sinusoidal_ || positions + config_.pos.learned_offset <= sinusoidal_.rows(), positions,
               " positions exceed the sinusoidal table of ",
               sinusoidal_ ? sinusoidal_.rows() - config_.pos.learned_offset : 0);
  ASHLAR_CHECK(config_.pos.type != PosType::kRope || positions <= tables_.positions(), positions,
               " positions exceed the rotary tables of ", tables_.positions());
}

Var Stage::blocks(const Ctx& ctx, const Var& x, const BatchView& batch, const BlockObserver& after,
                  const std::function<void()>& progress) const {
  check_positions(batch.T);
  const bool again = ctx.recompute == Recompute::kBlock && ctx.tape != nullptr;
  StreamSum h{.x = x};
  int64_t layers = range_.first_layer;
  for (const auto& block : blocks_) {
    if (again) {  // whose input is one value
      h.x = recompute(ctx, h.x, [&block = *block, batch, this](const Ctx& c, const Var& in) {
        const Rows rows = rows_of(batch, nullptr);
        return block.total(c, block(c, {.x = in}, rows), rows);
      });
    } else {
      h = (*block)(ctx, std::move(h), rows_of(batch, nullptr));
    }
    ++layers;
    if (after || layers == range_.last_layer) h = {.x = block->total(ctx, h, rows_of(batch, nullptr))};
    if (progress) progress();
    if (after) after(layers, h.x.value);
  }
  return h.x;
}

ops::FusedLinearCrossEntropyOptions Stage::loss_options(const ConstView& targets, ops::Reduction& reduction) const {
  ASHLAR_CHECK(head_ != nullptr, "this stage has no head");
  return {.targets = targets,
          .vocab = config_.vocab_size,
          .vocab_begin = slices_.vocab.begin,
          .reduction = tp_.size() == 1 ? nullptr : &reduction,
          .logit_scale = config_.logit_scale,
          .softcap = config_.softcap.value_or(0),
          .norm_rows = config_.norm_rows,
          .masked_ids = masked_ids_ ? masked_ids_.view() : ConstView{},
          .z_coef = config_.loss.z_coef,
          .z_kind = config_.loss.z_kind};
}

void Stage::loss(const Ctx& ctx, const Var& x, const BatchView& batch, const MutView& stats) const {
  tensor::GroupReduction reduction(*tp_.group);
  const ops::FusedLinearCrossEntropyOptions options = loss_options(batch.targets, reduction);
  ops::fused_linear_cross_entropy(ctx, tensor::enter(ctx, final_rows(ctx, x), tp_), head_->weight,
                                  head_bias_ == nullptr ? nullptr : &head_bias_->weight, options, stats);
}

std::vector<TargetScore> Stage::score(const Ctx& ctx, const Tensor& x, std::span<const int64_t> rows,
                                      std::span<const int32_t> targets) const {
  ASHLAR_CHECK(rows.size() == targets.size() && ctx.tape == nullptr, rows.size(), " rows, ", targets.size(),
               " targets; scores have no tape");
  const ValueInfo stream{.op = "the residual stream", .placement = tp_.residual_stream()};
  const Tensor all = tensor::enter(ctx, final_rows(ctx, Var{.value = x, .info = stream}), tp_).value;
  if (rows.empty()) return {};
  const Tensor h = ops::take_rows(ctx, all, rows);
  const Tensor ids = ops::id_list(ctx, std::vector<int64_t>(targets.begin(), targets.end()));
  tensor::GroupReduction reduction(*tp_.group);
  const ops::TargetStatistics found =
      ops::target_statistics(ctx, h, head_->weight, head_bias_ == nullptr ? nullptr : &head_bias_->weight,
                             loss_options(ids.view(), reduction));
  const std::vector<double> max = ctx.download_numbers(found.row_max), sum = ctx.download_numbers(found.row_sum),
                            target = ctx.download_numbers(found.target_logit),
                            count = ctx.download_numbers(found.max_count);
  std::vector<TargetScore> scores;
  for (size_t i = 0; i < rows.size(); ++i)
    scores.push_back(
        {.log_prob = target[i] - max[i] - std::log(sum[i]), .greedy = target[i] == max[i] && count[i] == 1});
  return scores;
}

Var Stage::final_rows(const Ctx& ctx, const Var& x) const {
  const Var rows = final_norm_ ? (*final_norm_)(ctx, x) : x;
  return project_out_ == nullptr ? rows : ops::whole_linear(ctx, rows, project_out_->weight);
}

Tensor Stage::logits(const Ctx& ctx, const Tensor& x) const {
  ASHLAR_CHECK(head_ != nullptr && ctx.tape == nullptr, "logits must be computed on the last stage and without a tape");
  const Tensor head =
      config_.norm_rows ? ops::normalized_rows(ctx, head_->weight).rows : head_->weight.read(ctx.stream);
  const Tensor part = ops::logits(ctx, final_rows(ctx, Var{.value = x}).value, head,
                                  head_bias_ == nullptr ? nullptr : &head_bias_->weight);
  return tensor::gather_columns(ctx, part, tp_);
}

KvCache Stage::make_cache(const Ctx& ctx, int64_t batch, int64_t max_tokens) const {
  KvCache cache{.B = batch, .capacity = max_tokens, .k = {}, .v = {}};
  cache.k.resize(config_.n_layers);
  cache.v.resize(config_.n_layers);
  for (const auto& block : blocks_) block->add_to_cache(ctx, cache);
  return cache;
}

Tensor Stage::decode(const Ctx& ctx, const Tensor& x, const BatchView& batch, KvCache& cache) const {
  check_positions(cache.length + batch.T);
  ASHLAR_CHECK(batch.B == cache.B, "got ", batch.B, " samples, but the cache has ", cache.B);
  Var h = range_.embedding ? lookup(ctx, batch, tp_.with_whole_rows()) : Var{.value = x};
  StreamSum sum{.x = std::move(h)};
  for (const auto& block : blocks_) sum = (*block)(ctx, std::move(sum), rows_of(batch, &cache));
  if (!blocks_.empty()) sum = {.x = blocks_.back()->total(ctx, sum, rows_of(batch, &cache))};
  cache.length += batch.T;
  return sum.x.value;
}

}  // namespace ashlar::model
