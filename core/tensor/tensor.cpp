#include "core/tensor/tensor.h"

#include <utility>

namespace ashlar {

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += str_cat(i == 0 ? "" : ", ", dims_[i]);
  return text + "]";
}

struct Tensor::Storage {
  Storage(Allocator& a, int64_t bytes) : allocator(a), block(a.allocate(bytes)) {}
  ~Storage() { allocator.release(block); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Allocator& allocator;
  void* block;
};

Tensor Tensor::allocate(Allocator& allocator, DType dtype, const Shape& shape) {
  Tensor t;
  t.storage_ = std::make_shared<Storage>(allocator, shape.size() * size_of(dtype));
  t.stride_ = shape.cols();
  t.dtype_ = dtype;
  t.shape_ = shape;
  return t;
}

void* Tensor::data() const {
  ASHLAR_CHECK(storage_ != nullptr, "use of an undefined tensor");
  return static_cast<char*>(storage_->block) + offset_ * size_of(dtype_);
}

Tensor Tensor::reshape(const Shape& shape) const {
  ASHLAR_CHECK(contiguous() && shape.size() == size(), shape_.str(), " cannot become ", shape.str());
  Tensor t = *this;
  t.shape_ = shape;
  t.stride_ = shape.cols();
  return t;
}

Tensor Tensor::row_range(int64_t begin, int64_t count) const {
  ASHLAR_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "rows ", begin, "+", count, " of ", shape_.str());
  Tensor t = *this;
  t.offset_ += begin * stride_;
  t.shape_ = {count, cols()};
  return t;
}

Tensor Tensor::column_range(int64_t begin, int64_t count) const {
  ASHLAR_CHECK(begin >= 0 && count >= 0 && begin + count <= cols(), "columns ", begin, "+", count, " of ",
               shape_.str());
  Tensor t = *this;
  t.offset_ += begin;
  t.shape_ = {rows(), count};
  return t;
}

std::vector<Tensor> Tensor::split_columns(Tensor whole, const std::vector<int64_t>& widths) {
  ASHLAR_CHECK(whole.unique(), "expected a tensor without other references, whose columns would overlap");
  std::vector<Tensor> parts;
  int64_t column = 0;
  for (const int64_t width : widths) {
    Tensor part = whole.column_range(column, width);
    // Each part gets a reference count of its own, since the parts share the memory block but no elements.
    part.storage_ = {std::make_shared<std::shared_ptr<Storage>>(whole.storage_), whole.storage_.get()};
    parts.push_back(std::move(part));
    column += width;
  }
  ASHLAR_CHECK(column == whole.cols(), "widths add up to ", column, ", the row has ", whole.cols());
  return parts;
}

Tensor Tensor::join_columns(std::vector<Tensor>& parts) {
  const Tensor& first = parts.front();
  int64_t cols = 0;
  for (const Tensor& part : parts) {
    if (!part.unique() || part.storage_.get() != first.storage_.get() || part.dtype_ != first.dtype_ ||
        part.rows() != first.rows() || part.stride_ != first.stride_ || part.offset_ != first.offset_ + cols)
      return {};
    cols += part.cols();
  }
  if (cols != first.stride_) return {};
  Tensor whole = first;
  whole.shape_ = {first.rows(), cols};
  std::vector<std::shared_ptr<Storage>> owned;
  for (Tensor& part : parts) owned.push_back(std::move(part.storage_));
  Storage* const block = owned.front().get();
  whole.storage_ = {std::make_shared<std::vector<std::shared_ptr<Storage>>>(std::move(owned)), block};
  return whole;
}

Tensor Tensor::flat_range(int64_t begin, int64_t count) const {
  ASHLAR_CHECK(contiguous() && begin >= 0 && begin + count <= size(), "elements ", begin, "+", count, " of ",
               shape_.str());
  Tensor t = *this;
  t.offset_ += begin;
  t.shape_ = Shape{count};
  t.stride_ = count;
  return t;
}

}  // namespace ashlar
