#pragma once

#include <memory>
#include <vector>

#include "core/device/allocator.h"
#include "core/tensor/shape.h"
#include "core/tensor/view.h"

namespace ashlar {

/// Reference-counted device memory with a shape. Copying shares the memory; data is copied only by kernels. Contiguous,
/// except that a rank-2 tensor may be a column slice of another (row stride > cols).
class Tensor {
 public:
  Tensor() = default;
  static Tensor allocate(Allocator& allocator, DType dtype, const Shape& shape);

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t size() const { return shape_.size(); }
  int64_t rows() const { return shape_.rows(); }
  int64_t cols() const { return shape_.cols(); }
  int64_t row_stride() const { return stride_; }
  bool contiguous() const { return rows() <= 1 || stride_ == cols(); }

  /// The same memory with another shape of equal size; contiguous tensors only.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, begin + count) as a rank-2 tensor.
  Tensor row_range(int64_t begin, int64_t count) const;
  /// Columns [begin, begin + count) as a rank-2 tensor with the same row stride.
  Tensor column_range(int64_t begin, int64_t count) const;
  /// All columns of a tensor without other references, as separate tensors: each is `unique` until it is shared.
  static std::vector<Tensor> split_columns(Tensor whole, const std::vector<int64_t>& widths);
  /// Elements [begin, begin + count) of a contiguous tensor as a vector.
  Tensor flat_range(int64_t begin, int64_t count) const;

  /// True when no other Tensor shares the elements. They may be changed in place only then.
  bool unique() const { return storage_.use_count() == 1; }

  ConstView view() const { return {data(), dtype_, rows(), cols(), stride_}; }
  MutView mut_view() const { return {data(), dtype_, rows(), cols(), stride_}; }

 private:
  struct Storage;
  void* data() const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // elements
  int64_t stride_ = 0;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
};

/// The view of a tensor, absent if the tensor is.
inline ConstView view_or_none(const Tensor& t) { return t ? t.view() : ConstView{}; }
inline MutView mut_view_or_none(const Tensor& t) { return t ? t.mut_view() : MutView{}; }

}  // namespace ashlar
