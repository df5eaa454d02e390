#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/backend/attention.h"
#include "parallel/model/batch_view.h"
#include "parallel/model/kv_cache.h"
#include "parallel/model/layer_tables.h"
#include "parallel/model/linear_layer.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

/// Properties of the rows that a block processes, besides their values.
struct Rows {
  const BatchView& batch;
  const LayerTables& tables;  ///< empty unless positions are rotary
  const ScoreChange& scores;  ///< score changes of this rank's heads, without parameters: a branch adds its own
  nn::Parameter* t5_bias{};   ///< the table shared by all layers, or null
  KvCache* cache = nullptr;   ///< the previous tokens, when decoding; advanced by the stage

  /// The mask of a layer, with the micro-batch's documents.
  Mask with_documents(Mask mask) const {
    mask.doc_start = batch.doc_start;
    return mask;
  }
};

/// A branch of a block that is added to the residual stream: attention, a feed-forward network. A tensor rank holds a
/// slice of it and computes a partial sum of its result.
/// A block uses a branch in one of two ways. Either the branch adds its own inputs, and the block calls `forward`. Or
/// the block computes one product for several branches that read the same rows, holds their input matrices, and calls
/// `forward_from` with the columns of each branch.
class Branch {
 public:
  virtual ~Branch() = default;

  virtual std::string_view name() const = 0;                ///< name in its tensors, blocks.I.NAME, and of its dropout
  virtual void add_inputs(nn::ParameterStore& store) = 0;   ///< adds the matrices that multiply rows of the stream
  virtual void add_outputs(nn::ParameterStore& store) = 0;  ///< adds all other parameters
  /// x [N_loc, C], this rank's rows of the stream -> this rank's partial sum [N, C]. `tp` gives the layout of rows in
  /// this call: in decoding every rank has all rows.
  virtual Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const = 0;

  /// The parts that `add_inputs` would add, for a common product with other branches. `forward_from` gets their columns
  /// [N, width] of the result. Empty if the inputs of this branch are not a single product.
  virtual std::vector<LinearPart> input_parts() const { return {}; }
  virtual std::vector<int64_t> input_widths() const { return {}; }
  /// Computes `forward` from those columns, which it may overwrite.
  virtual Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const;

  /// Adds this branch's entries to the KV cache, for cache.B samples of cache.capacity tokens.
  virtual void add_to_cache(const Ctx& ctx, KvCache& cache) const;
};

/// The branches of a block, in the order of the serial block.
std::array<std::unique_ptr<Branch>, 2> make_branches(const ModelConfig& config, int64_t layer,
                                                     const tensor::TensorParallel& tp);

}  // namespace ashlar::model
