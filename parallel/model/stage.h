#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/ops/fused_linear_cross_entropy.h"
#include "parallel/model/block.h"
#include "parallel/model/slices.h"

namespace ashlar::model {

/// The part of the model that a chunk of the pipeline owns; without a pipeline it is the whole model.
struct StageRange {
  int64_t first_layer = 0, last_layer = 0;  ///< blocks [first, last)
  bool embedding = true;
  bool head = true;
  static StageRange whole(const ModelConfig& config) { return {.last_layer = config.n_layers}; }
};

/// Called with the residual stream [N_loc, C]: after the embedding with `layers` = 0, and after each block with
/// `layers` = the number of blocks of the whole model up to and including this one.
using BlockObserver = std::function<void(int64_t layers, const Tensor& rows)>;

/// How well the model predicts a target.
struct TargetScore {
  double log_prob = 0;
  bool greedy = false;  ///< the target alone has the largest logit
};

/// One chunk of the pipeline, called stage here: its blocks, and its embedding and head if it has them. Constructs only
/// the parameters that the stage owns, with global names. Construction adds parameters to the store; allocate and
/// initialize the store before the first forward. A tensor rank holds a slice of the vocabulary in the embedding and in
/// the head. Learned positions are on the first tensor rank only, so that they are added once. The projections of
/// embed_dim are on every tensor rank. If rows are sharded (tp.sequence_parallel) a hidden state is [N/size, C],
/// otherwise [N, C]: N_loc below. If a tied head is not on the embedding's stage, the head's stage has a copy of the
/// table. If all layers share one table of T5's biases, every stage with layers has a copy of that table. Such copies
/// are replicated over the pipeline, and their gradients are summed.
class Stage {
 public:
  Stage(nn::ParameterStore& store, const ModelConfig& config, const StageRange& range,
        const tensor::TensorParallel& tp);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Creates the tables that the model needs: rotary or sinusoidal tables for positions < `positions`, ALiBi's slopes,
  /// T5's buckets, and the list of masked ids. `positions` is the length of the longest sequence that will be used;
  /// longrope selects its factors by this length. Call once, after the store is allocated.
  void make_tables(const Ctx& ctx, int64_t positions);

  /// Returns the embedding [N_loc, C] of tokens and of learned or sinusoidal positions, with its norm and dropout.
  Var embed(const Ctx& ctx, const BatchView& batch) const;
  /// This stage's blocks, each recomputed in backward if ctx.recompute requests it: [N_loc, C] -> [N_loc, C]. `after`,
  /// if given, is called with each block's output. It costs a pass a block: without it, the last sum of a block that is
  /// not recomputed is made by the first norm of the next. `progress`, if given, is called after each block.
  Var blocks(const Ctx& ctx, const Var& x, const BatchView& batch, const BlockObserver& after = {},
             const std::function<void()>& progress = {}) const;
  /// Computes final norm, head and loss, and adds the results to `stats`. If ctx has a tape, backward then needs no
  /// seed gradient.
  void loss(const Ctx& ctx, const Var& x, const BatchView& batch, const MutView& stats) const;
  /// Returns the score of the target of each row in `rows`. `targets`: ids on the host, none of them masked. The host
  /// waits. With sequence parallelism x has this rank's rows, and `rows` counts the rows of all ranks.
  std::vector<TargetScore> score(const Ctx& ctx, const Tensor& x, std::span<const int64_t> rows,
                                 std::span<const int32_t> targets) const;
  /// Computes final norm and the head's matrix product: unsharded rows [N, C] -> [N, V] in the accumulate dtype.
  /// finish_logits converts the result to the logits of the model. Columns from vocab_size on are padding.
  Tensor logits(const Ctx& ctx, const Tensor& x) const;
  /// Returns an empty KV cache for `batch` samples of up to `max_tokens` tokens.
  KvCache make_cache(const Ctx& ctx, int64_t batch, int64_t max_tokens) const;
  /// Processes new tokens that follow the cached ones: hidden rows [N, C] of the previous stage (absent on the first
  /// stage, which embeds the tokens) -> hidden rows of this stage. Advances the cache. Rows are not sharded.
  Tensor decode(const Ctx& ctx, const Tensor& x, const BatchView& batch, KvCache& cache) const;

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const Block& block(int64_t i) const { return *blocks_[i]; }  ///< the i-th block of this stage
  const ModelConfig& config() const { return config_; }
  const StageRange& range() const { return range_; }
  const tensor::TensorParallel& tensor_parallel() const { return tp_; }
  const Slices& slices() const { return slices_; }

 private:
  void check_positions(int64_t positions) const;
  Var final_rows(const Ctx& ctx, const Var& x) const;
  ops::FusedLinearCrossEntropyOptions loss_options(const ConstView& targets, ops::Reduction& reduction) const;
  Rows rows_of(const BatchView& batch, KvCache* cache) const {
    return {.batch = batch, .tables = tables_, .scores = scores_, .t5_bias = t5_bias_, .cache = cache};
  }
  Var lookup(const Ctx& ctx, const BatchView& batch, const tensor::TensorParallel& tp) const;

  ModelConfig config_;
  StageRange range_;
  tensor::TensorParallel tp_;
  Slices slices_;
  std::vector<std::unique_ptr<Block>> blocks_;
  nn::Parameter* tokens_ = nullptr;
  nn::Parameter* project_in_ = nullptr;  ///< [C, E] with embed_dim
  nn::Parameter* positions_ = nullptr;
  nn::Parameter* t5_bias_ = nullptr;      ///< [buckets, H] table that all layers share
  nn::Parameter* project_out_ = nullptr;  ///< [E, C] with embed_dim
  nn::Parameter* head_ = nullptr;         ///< the token table when tied
  nn::Parameter* head_bias_ = nullptr;
  std::optional<NormLayer> embed_norm_, final_norm_;
  LayerTables tables_;
  ScoreChange scores_;   ///< score changes of this rank's heads
  Tensor alibi_slopes_;  ///< [H] of this rank's heads, accumulate dtype
  Tensor t5_buckets_;    ///< [distances] kInt32
  Tensor sinusoidal_;    ///< [positions + offset, C] storage dtype; only on the rank that adds positions
  Tensor masked_ids_;    ///< [number of masked ids] kInt32
};

}  // namespace ashlar::model
