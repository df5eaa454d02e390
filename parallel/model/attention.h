#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ops/norm_heads.h"
#include "core/ops/rope.h"
#include "parallel/model/batch_view.h"
#include "parallel/model/kv_cache.h"
#include "parallel/model/linear_layer.h"
#include "parallel/model/rope_frequencies.h"
#include "parallel/model/slices.h"
#include "parallel/tensor/collectives.h"

namespace ashlar::model {

/// A table of T5's biases [buckets, H], cut by heads, or the one of that name that the store has.
nn::Parameter* t5_bias_table(nn::ParameterStore& store, const ModelConfig& config, nn::ShardedTensor tensor,
                             const nn::Extent& heads);

/// Rotary tables by layer: layers that rotate alike share theirs.
class LayerTables {
 public:
  /// For positions < `positions`, of layers [first, last).
  void make(const Ctx& ctx, const ModelConfig& config, int64_t first, int64_t last, int64_t positions);
  /// Null for a layer that leaves queries and keys as they are.
  const ops::RopeTables* of(int64_t layer) const;
  int64_t positions() const { return positions_; }

 private:
  struct Kind {
    LayerRope rope;
    ops::RopeTables tables;
  };
  std::vector<Kind> kinds_;
  std::vector<int64_t> kind_of_;  ///< by layer; -1: none
  int64_t positions_ = 0;
};

/// The rows that a block works on, beside their values.
struct Rows {
  const BatchView& batch;
  const LayerTables& tables;  ///< none unless positions are rotary
  ConstView alibi_slopes{};   ///< of this rank's heads; absent unless positions are ALiBi's
  ConstView t5_buckets{};     ///< by distance; absent unless positions are T5's bias
  nn::Parameter* t5_bias{};   ///< the table that all layers share, or none
  KvCache* cache = nullptr;   ///< the tokens before them, when decoding; the stage advances it
};

/// Causal self-attention of this rank's heads: qkv = x [q; k; v]^T, q and k normed, all three clipped, q and k rotated
/// (or all clipped, q and k rotated and normed), attended, times the output matrix. Where attention is full and
/// attn.k_eq_v: qk = x [q; k]^T, and v is k before anything is done to it. With attn.v_norm each head of v is divided
/// by its root mean square before q and k rotate.
/// The parallel block with one norm keeps q, k and v in a product with the FFN's: it takes `input_parts` and calls
/// `from_qkv`; otherwise `add_input` makes their own.
class Attention {
 public:
  Attention(const ModelConfig& config, int64_t layer, const tensor::TensorParallel& tp);

  std::vector<LinearPart> input_parts() const;
  int64_t qkv_width() const {
    const int64_t G = slices_.kv_heads.size;
    return (slices_.heads.size + G) * heads_.head_dim + (heads_.values ? G * heads_.v_head_dim : 0);
  }
  void add_input(nn::ParameterStore& store);
  /// The output matrix, the norms of queries and keys, the sinks and this layer's biases where the model has them.
  void add_output(nn::ParameterStore& store);

  /// x [N, C] -> this rank's part of the sum over heads [N, C]
  Var operator()(const Ctx& ctx, const Var& x, const Rows& rows) const { return from_qkv(ctx, qkv_(ctx, x), rows); }
  /// qkv [N, qkv_width] of this rank's heads -> as above. Moved in, q and k are rotated in place where no norm comes
  /// before.
  Var from_qkv(const Ctx& ctx, Var qkv, const Rows& rows) const;

 private:
  ops::HeadNorm head_norm(nn::ParameterStore& store, const char* name, const nn::Extent& heads, bool keys);
  void make_parts(nn::ParameterStore& store);
  Var arranged(const Ctx& ctx, const Var& qkv, const std::vector<ops::HeadPart>& parts) const;
  Var rotate(const Ctx& ctx, Var qkv, const Rows& rows) const;

  const ModelConfig& config_;
  tensor::TensorParallel tp_;
  Slices slices_;
  LayerHeads heads_;
  int64_t layer_;
  std::string name_;
  uint32_t scores_site_;  ///< dropout on the probabilities
  AttentionVariant variant_;
  LinearLayer qkv_, out_;
  /// q, k and v as they are made before q and k rotate, and after: normed, or values from keys; none: nothing to do.
  std::vector<ops::HeadPart> before_, after_;
  std::unique_ptr<tensor::GroupReduction> over_all_heads_;  ///< of norms over all heads
  nn::Parameter* sinks_ = nullptr;
  nn::Parameter* t5_bias_ = nullptr;  ///< this layer's own table
};

}  // namespace ashlar::model
