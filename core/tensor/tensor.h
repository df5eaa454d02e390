#pragma once

#include <memory>
#include <vector>

#include "core/device/allocator.h"
#include "core/tensor/shape.h"
#include "core/tensor/view.h"

namespace ashlar {

/// Reference-counted device memory with a shape. A copy of a Tensor shares the memory; only kernels copy data. Tensors
/// are contiguous, except that a rank-2 tensor may be a column slice of another tensor (row stride > cols).
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

  /// Returns the same memory with another shape of equal size. The tensor must be contiguous.
  Tensor reshape(const Shape& shape) const;
  /// Returns the rows [begin, begin + count) as a rank-2 tensor.
  Tensor row_range(int64_t begin, int64_t count) const;
  /// Returns the columns [begin, begin + count) as a rank-2 tensor with the same row stride.
  Tensor column_range(int64_t begin, int64_t count) const;
  /// Splits a tensor that has no other references into column slices. Each slice is `unique` until it is copied.
  static std::vector<Tensor> split_columns(Tensor whole, const std::vector<int64_t>& widths);
  /// Returns the tensor whose columns are these, from left to right, if they are all columns of what was split and no
  /// other Tensor shares their elements. Otherwise returns an undefined tensor, and `parts` are unchanged.
  static Tensor join_columns(std::vector<Tensor>& parts);
  /// Returns the elements [begin, begin + count) of a contiguous tensor as a vector.
  Tensor flat_range(int64_t begin, int64_t count) const;

  /// True if no other Tensor shares the elements. Only then may they be changed in place.
  bool unique() const { return storage_.use_count() == 1; }

  ConstView view() const { return {data(), dtype_, rows(), cols(), stride_}; }
  MutView mut_view() const { return {data(), dtype_, rows(), cols(), stride_}; }

 private:
  struct Storage;
  void* data() const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // in elements
  int64_t stride_ = 0;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
};

/// Return the view of a tensor, or an absent view if the tensor is undefined.
inline ConstView view_or_none(const Tensor& t) { return t ? t.view() : ConstView{}; }
inline MutView mut_view_or_none(const Tensor& t) { return t ? t.mut_view() : MutView{}; }

}  // namespace ashlar
