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

/// The inputs of a block, besides the values of its rows.
struct Rows {
  const BatchView& batch;
  const LayerTables& tables;    ///< empty unless positions are rotary
  const ScoreChange& scores;    ///< score changes of this rank's heads; a branch adds its sinks and T5 biases
  nn::Parameter* t5_bias{};     ///< T5 bias table shared by all layers, or null
  const Var* stream = nullptr;  ///< this rank's rows of the residual stream that the block's norm has read
  KvCache* cache = nullptr;     ///< cache of the previous tokens when decoding, else null; the stage advances it

  /// Returns the mask of a layer with the document boundaries of the micro-batch.
  Mask with_documents(Mask mask) const {
    mask.doc_start = batch.doc_start;
    return mask;
  }
};

/// A branch of a block that is added to the residual stream: attention or a feed-forward network. A tensor rank holds a
/// slice of the branch and computes a partial sum of the branch's result.
/// A block uses a branch in one of two ways. Either the branch owns its input matrices (add_inputs), and the block
/// calls `forward`. Or the block owns the input matrices of several branches that read the same rows, computes one
/// product with all of them, and calls `forward_from` with the columns of each branch.
class Branch {
 public:
  virtual ~Branch() = default;

  virtual std::string_view name() const = 0;  ///< NAME in tensors blocks.I.NAME and in the random stream of the dropout
  virtual void add_inputs(nn::ParameterStore& store) = 0;   ///< adds the matrices that multiply rows of the stream
  virtual void add_outputs(nn::ParameterStore& store) = 0;  ///< adds all other parameters
  /// x [N_loc, C], this rank's rows of the stream -> this rank's partial sum [N, C]. `tp` gives the layout of rows in
  /// this call: in decoding every rank has all rows.
  virtual Var forward(const Ctx& ctx, const Var& x, const Rows& rows, const tensor::TensorParallel& tp) const = 0;
  /// True if `forward` has reduced its result over the tensor group: this rank's rows [N_loc, C] of the whole sum.
  virtual bool reduces() const { return false; }

  /// Returns the matrices that `add_inputs` would add, for one product together with another branch. `forward_from`
  /// gets the columns [N, width] of the result that belong to this branch. Returns an empty list if the inputs of this
  /// branch are not a single product.
  virtual std::vector<LinearPart> input_parts() const { return {}; }
  virtual std::vector<int64_t> input_widths() const { return {}; }
  /// Computes the result of `forward` from this branch's columns of the product with input_parts(). The function may
  /// overwrite these columns.
  virtual Var forward_from(const Ctx& ctx, std::span<Var> inputs, const Rows& rows) const;

  /// Adds this branch's entries to the KV cache, for cache.B samples of cache.capacity tokens.
  virtual void add_to_cache(const Ctx& ctx, KvCache& cache) const;
};

/// Makes the branches of a block: attention, then feed-forward.
std::array<std::unique_ptr<Branch>, 2> make_branches(const ModelConfig& config, int64_t layer,
                                                     const tensor::TensorParallel& tp);

}  // namespace ashlar::model
