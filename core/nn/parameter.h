#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/autograd/weight.h"
#include "core/nn/layer_metrics.h"
#include "core/nn/tensor_axes.h"

namespace ashlar::nn {

/// Purpose of a tensor: determines weight decay and statistics.
enum class Role : uint8_t { kMatrix, kEmbedding, kPosition, kNorm, kBias };
constexpr auto names_of(Role) { return enum_names<Role>("matrix", "embedding", "position", "norm", "bias"); }
using ashlar::name_of;

/// Initialization of a tensor. `rule` is the text shown to the user ("0.02/sqrt(2*12)").
struct InitRule {
  enum class Kind : uint8_t { kConstant, kNormal } kind = Kind::kConstant;
  double value = 0;        ///< the constant, or the standard deviation
  double trunc_sigma = 0;  ///< truncated normal: values beyond this many deviations are drawn again; 0: none
  std::string rule;
};

/// A contiguous part of one dimension of a global tensor: [begin, begin + size) of `global`.
struct DimShard {
  int64_t begin = 0, size = 0, global = 0;

  static DimShard whole(int64_t n) { return {.begin = 0, .size = n, .global = n}; }
  /// Part `index` of `parts` equal parts, which must divide n.
  static DimShard part(int64_t n, int64_t parts, int64_t index);
  /// Returns this part in units of elements if each entry has `n` elements (heads to rows).
  DimShard times(int64_t n) const { return {.begin = begin * n, .size = size * n, .global = global * n}; }
  int64_t end() const { return begin + size; }
};

/// This rank's part of a named tensor of the model. Rows [global_row, global_row + rows) and columns [global_col,
/// global_col + cols) of the global tensor are rows [storage_row, storage_row + rows) of the storage. Initialization,
/// weight decay, clipping, statistics, checkpoints, import and export use sharded tensors only.
struct ShardedTensor {
  std::string name;  ///< global: "blocks.3.attn.q.weight"
  Role role = Role::kMatrix;
  Shape global_shape;  ///< [rows, cols], or [cols] for a vector
  int64_t global_row = 0, global_col = 0;
  int64_t rows = 0, cols = 0;  ///< local size; a vector has one row
  int64_t storage_row = 0;     ///< offset of this tensor in the storage: in rows for a matrix, in elements for a vector
  InitRule init;
  TensorAxes axes;
  /// True on the first of the ranks of one replica that hold this part (zero::SharedTensors): only this rank saves it
  /// and counts it in norms and totals.
  bool main_replica = true;

  bool vector() const { return global_shape.rank() == 1; }
  int64_t size() const { return rows * cols; }
  uint64_t rng_stream() const { return hash64(name); }  ///< random stream of its initial values
};

/// Identifies the ranks of one replica that hold the same vector: the ranks along `summed_over`. If `sharded_over` has
/// the same axis, only those with the same part.
struct SharedVectors {
  AxisSet summed_over, sharded_over;
  auto operator<=>(const SharedVectors&) const = default;
};

/// Storage of one or more tensors that share a matrix product ([q; k; v; gate; up]), with its gradient. Rows without a
/// tensor (vocabulary padding) stay zero.
struct Parameter {
  std::string name;
  Shape shape;  ///< [rows, cols] or [cols]
  std::vector<ShardedTensor> tensors;
  Weight weight;
  int64_t flat_offset = 0;  ///< elements from the start of the flat buffers

  /// The offset of a tensor's elements in the flat buffers, in which they are contiguous.
  int64_t flat_begin(const ShardedTensor& tensor) const {
    return flat_offset + tensor.storage_row * (tensor.vector() ? 1 : shape.cols());
  }
  /// The axes over which weights are replicated and the optimizer state is sharded; Bug when its tensors differ.
  AxisSet replica_axes() const;
  /// Returns the ranks of one replica that share the vectors of this parameter, e.g. of a norm; nullopt for other
  /// parameters.
  std::optional<SharedVectors> shared_vectors() const;
};

/// All parameters of a rank, in two flat buffers: values (storage dtype) and main gradients (accumulate dtype). Offsets
/// are equal in both, aligned to 64 elements; gaps are zero. Parameters with the same replicas are contiguous. Among
/// these, vectors that ranks of one replica share come first, grouped by axes, so that replicas exchange many small
/// vectors in one message.
class ParameterStore {
 public:
  /// Adds a parameter; tensors must tile it. The reference stays valid. Before `arrange` only.
  Parameter& add(std::string name, const Shape& shape, std::vector<ShardedTensor> tensors);
  /// Assigns each parameter its position in the flat buffers.
  void arrange();
  /// Calls `arrange` and allocates the flat buffers, filled with zeros. Without `training` there are no gradients and
  /// sums.
  void allocate(const Ctx& ctx, bool training);
  /// Fills `buffer` (of any floating dtype, laid out like the values) with each tensor's initial values.
  void initialize(const Ctx& ctx, uint64_t seed, const Tensor& buffer) const;

  /// Discards the gradients of the last step.
  void begin_step();

  struct ShardedTensorRef {
    const Parameter* parameter;
    const ShardedTensor* tensor;
    int64_t flat_begin;
  };
  /// Ordered by `add` until `arrange`, then by offset in the flat buffers.
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Every sharded tensor, ordered by global name.
  const std::vector<ShardedTensorRef>& sharded_tensors() const { return sharded_tensors_; }
  const ShardedTensorRef* find(std::string_view name) const;

  /// Statistics declared by layers.
  LayerMetrics& sums() { return sums_; }
  const LayerMetrics& sums() const { return sums_; }

  const Tensor& values() const { return values_; }
  const Tensor& grads() const { return grads_; }
  int64_t flat_size() const { return flat_size_; }
  /// A tensor's part of a flat buffer, in the tensor's shape.
  static Tensor of(const Tensor& buffer, const ShardedTensorRef& ref);

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<ShardedTensorRef> sharded_tensors_;
  LayerMetrics sums_;
  Tensor values_, grads_;
  int64_t flat_size_ = 0;
};

}  // namespace ashlar::nn
