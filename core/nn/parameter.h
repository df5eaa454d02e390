#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/autograd/weight.h"
#include "core/nn/expert_counts.h"
#include "core/nn/layer_metrics.h"
#include "core/nn/tensor_axes.h"

namespace ashlar::nn {

/// The purpose of a tensor, which determines its learning rate and its weight decay. kExpert: a matrix of a routed
/// expert.
enum class Role : uint8_t { kMatrix, kExpert, kEmbedding, kPosition, kNorm, kBias };
constexpr auto names_of(Role) { return enum_names<Role>("matrix", "expert", "embedding", "position", "norm", "bias"); }
using ashlar::name_of;

/// Initialization of a tensor. `rule` is the text shown to the user ("0.02/sqrt(2*12)").
struct InitRule {
  enum class Kind : uint8_t { kConstant, kNormal } kind = Kind::kConstant;
  double value = 0;        ///< the constant, or the standard deviation
  double trunc_sigma = 0;  ///< values beyond this many standard deviations are drawn again; 0: no truncation
  std::string rule;
};

/// A contiguous part of one dimension of a global tensor: [begin, begin + size) of `global`.
struct DimShard {
  int64_t begin = 0, size = 0, global = 0;

  static DimShard whole(int64_t n) { return {.begin = 0, .size = n, .global = n}; }
  /// Returns part number `index` if a dimension of n entries is divided into `parts` equal parts; `parts` must divide
  /// n.
  static DimShard part(int64_t n, int64_t parts, int64_t index);
  /// Returns this part of a dimension in which each entry is replaced by n entries, e.g. each head by head_dim rows.
  DimShard times(int64_t n) const { return {.begin = begin * n, .size = size * n, .global = global * n}; }
  int64_t end() const { return begin + size; }
};

/// This rank's part of a named tensor of the model. Rows [global_row, global_row + rows) and columns [global_col,
/// global_col + cols) of the global tensor are stored in rows [storage_row, storage_row + rows) of a Parameter.
/// Initialization, weight decay, clipping, statistics, checkpoints, import and export work on sharded tensors, never on
/// Parameters.
struct ShardedTensor {
  std::string name;  ///< name in the whole model, e.g. "blocks.3.attn.q.weight"
  Role role = Role::kMatrix;
  Shape global_shape;  ///< [rows, cols], or [cols] for a vector
  int64_t global_row = 0, global_col = 0;
  int64_t rows = 0, cols = 0;  ///< size of this rank's part; a vector has one row
  int64_t storage_row = 0;     ///< offset of this tensor in its Parameter: in rows for a matrix, in elements for a
                               ///< vector
  InitRule init;
  TensorAxes axes;
  /// True on exactly one of the ranks of a replica that have the same part: only this rank saves the part and counts it
  /// in norms and totals. zero::SharedTensors sets it.
  bool main_replica = true;

  bool vector() const { return global_shape.rank() == 1; }
  int64_t size() const { return rows * cols; }
  uint64_t rng_stream() const { return hash64(name); }  ///< random stream of its initial values
};

/// Identifies the ranks of one replica that have the same vector: all ranks along the axes `summed_over`. Along an
/// axis that is also in `sharded_over`, these are only the ranks with the same part of the tensor.
struct SharedVectors {
  AxisSet summed_over, sharded_over;
  auto operator<=>(const SharedVectors&) const = default;
};

/// Storage and gradient of one or more tensors that one matrix product uses together, e.g. the rows [q; k; v]. Rows
/// that belong to no tensor (vocabulary padding) stay zero.
struct Parameter {
  std::string name;
  Shape shape;  ///< [rows, cols] or [cols]
  std::vector<ShardedTensor> tensors;
  Weight weight;
  int64_t flat_offset = 0;  ///< offset in the flat buffers, in elements

  /// Returns the offset of a tensor in the flat buffers, in which its elements are contiguous.
  int64_t flat_begin(const ShardedTensor& tensor) const {
    return flat_offset + tensor.storage_row * (tensor.vector() ? 1 : shape.cols());
  }
  /// Returns the axes over which the weights are replicated and the optimizer state is sharded. Throws a Bug if the
  /// tensors of this parameter differ in these axes.
  AxisSet replica_axes() const;
  /// If this parameter consists of vectors that several ranks of one replica share, e.g. the gain of a norm, identifies
  /// these ranks. Returns nullopt for all other parameters.
  std::optional<SharedVectors> shared_vectors() const;
};

/// What a buffer is for. kModel: forward needs it, so it is stored, imported and exported with the weights. kTraining:
/// only training needs it, so it is stored with the optimizer state and absent from a store without training.
enum class BufferUse : uint8_t { kModel, kTraining };

/// State of a layer that gradients do not train, e.g. the bias with which a router selects experts. It has the
/// accumulate dtype and starts at zero. Every rank that has the layer has the whole buffer, with the same values.
/// Optimizers, norms and sums of gradients do not see it.
struct Buffer {
  ShardedTensor tensor;
  BufferUse use = BufferUse::kModel;
  Tensor values;           ///< in the global shape
  int64_t flat_begin = 0;  ///< offset in ParameterStore::buffer_values
};

/// All parameters of a rank, in two flat buffers: values (storage dtype) and main gradients (accumulate dtype). A
/// parameter has the same offset in both, aligned to 64 elements; gaps are zero. Parameters with equal replica axes are
/// contiguous. Among parameters with equal replica axes, vectors that several ranks of one replica share come first,
/// grouped by the ranks that share them (SharedVectors), so that one message exchanges many small vectors.
class ParameterStore {
 public:
  /// Adds a parameter whose storage the given tensors share without overlap. The returned reference stays valid. Must
  /// be called before `arrange`.
  Parameter& add(std::string name, const Shape& shape, std::vector<ShardedTensor> tensors);
  /// Adds a buffer of a layer. The returned reference stays valid. Must be called before `allocate`.
  Buffer& add_buffer(std::string name, const Shape& shape, BufferUse use);
  /// Assigns each parameter its position in the flat buffers.
  void arrange();
  /// Calls `arrange` and allocates the flat buffers, filled with zeros. Without `training`, gradients, layer metrics
  /// and counts of experts are not allocated.
  void allocate(const Ctx& ctx, bool training);
  /// Fills `buffer`, which has any floating dtype and the layout of the values, with the initial values of all tensors.
  void initialize(const Ctx& ctx, uint64_t seed, const Tensor& buffer) const;

  /// Starts a step: the first contribution to each gradient will overwrite the gradient of the last step.
  void begin_step();

  struct ShardedTensorRef {
    const Parameter* parameter;  ///< null for a buffer
    const ShardedTensor* tensor;
    int64_t flat_begin;
  };
  /// Returns all parameters: in the order of `add` before `arrange`, and by offset in the flat buffers afterwards.
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  /// Returns all sharded tensors, ordered by name.
  const std::vector<ShardedTensorRef>& sharded_tensors() const { return sharded_tensors_; }
  const ShardedTensorRef* find(std::string_view name) const;

  const std::vector<std::unique_ptr<Buffer>>& buffers() const { return buffers_; }
  /// Returns the allocated buffers with this use as tensors of the flat tensor `buffer_values`, ordered by name.
  const std::vector<ShardedTensorRef>& buffer_tensors(BufferUse use) const {
    return buffer_tensors_[static_cast<size_t>(use)];
  }
  const Tensor& buffer_values() const { return buffer_values_; }  ///< undefined without buffers

  ExpertCounts& expert_counts() { return expert_counts_; }
  const ExpertCounts& expert_counts() const { return expert_counts_; }

  /// The metrics that layers have declared.
  LayerMetrics& sums() { return sums_; }
  const LayerMetrics& sums() const { return sums_; }

  const Tensor& values() const { return values_; }
  const Tensor& grads() const { return grads_; }
  int64_t flat_size() const { return flat_size_; }
  /// Returns the part of a flat buffer that belongs to a tensor, in the shape of this rank's part of the tensor.
  static Tensor of(const Tensor& buffer, const ShardedTensorRef& ref);

 private:
  void allocate_buffers(const Ctx& ctx, bool training);

  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<ShardedTensorRef> sharded_tensors_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::array<std::vector<ShardedTensorRef>, 2> buffer_tensors_;  // by BufferUse
  LayerMetrics sums_;
  ExpertCounts expert_counts_;
  Tensor values_, grads_, buffer_values_;
  int64_t flat_size_ = 0, buffer_size_ = 0;
};

}  // namespace ashlar::nn
