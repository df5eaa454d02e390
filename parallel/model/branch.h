#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/model/batch_view.h"
#include "parallel/model/kv_cache.h"
#include "parallel/model/layer_tables.h"
#include "parallel/model/linear_layer.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// The rows that a block works on, beside their values.
struct Rows {
  const BatchView& batch;
  const LayerTables& tables;  ///< none unless positions are rotary
  ConstView alibi_slopes{};   ///< of this rank's heads; absent unless positions are ALiBi's
  ConstView t5_buckets{};     ///< by distance; absent unless positions are T5's bias
  nn::Parameter* t5_bias{};   ///< the table that all layers share, or none
  KvCache* cache = nullptr;   ///< the tokens before them, when decoding; the stage advances it
};

/// What a block adds to the residual stream: attention, a feed-forward network. A tensor rank holds a slice of it, and
/// computes a part of the sum over the group that is the branch's result.
/// A block either lets a branch add its own inputs and calls `forward`, or holds the matrices of several branches that
/// read the same rows in one product, and calls `forward_from` with each branch's columns of the result.
class Branch {
 public:
  virtual ~Branch() = default;

  virtual std::string_view name() const = 0;  ///< of its tensors, blocks.I.NAME, and of its dropout on the stream
  virtual void add_inputs(nn::ParameterStore& store) = 0;   ///< the matrices that multiply rows of the stream
  virtual void add_outputs(nn::ParameterStore& store) = 0;  ///< all its other parameters
  /// x [N_loc, C], rows of the stream as this rank holds them -> this rank's part of the sum [N, C]. `tp` says how rows
  /// lie in this call: in decoding they are whole on every rank.
  virtual Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const = 0;

  /// What `add_inputs` would add, for a product with other branches, and the columns [N, width] of its result that
  /// `forward_from` takes. None: this branch's inputs are no single product.
  virtual std::vector<LinearPart> input_parts() const { return {}; }
  virtual std::vector<int64_t> input_widths() const { return {}; }
  /// As `forward`, from those columns, which it may take over.
  virtual Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const;

  /// Adds what decoding keeps of this branch, for cache.B samples of cache.capacity tokens.
  virtual void add_to_cache(const Ctx& ctx, KvCache& cache) const;
};

/// The branches of a block, in the order in which a serial block joins them.
std::array<std::unique_ptr<Branch>, 2> make_branches(const ModelConfig& config, int64_t layer,
                                                     const tensor::TensorParallel& tp);

}  // namespace ashlar::model
