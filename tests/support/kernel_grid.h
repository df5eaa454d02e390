#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/backend/common.h"
#include "tests/support/test_memory.h"

namespace ashlar::test {

/// Storage dtypes that every kernel serves.
inline constexpr std::array<DType, 3> kStorageDTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};

struct Shape {
  int64_t rows;
  int64_t cols;
};

/// Odd shapes around vector lengths and blocks, and aligned ones; the last ones are large enough for two threads.
inline constexpr std::array<Shape, 9> kShapes = {Shape{1, 1}, {3, 3},    {1, 31},    {5, 33},  {31, 64},
                                                 {33, 257},   {3, 1025}, {129, 257}, {43, 768}};

/// Half the distance of neighbouring numbers around one.
inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-53;
    case DType::kBFloat16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

/// Error allowed for a result of magnitude `magnitude` (the sum of the absolute values of its terms, so that
/// cancellation is accounted for) reduced over `length` terms in the accumulate type and rounded once to `dtype`.
inline double tolerance(DType dtype, int64_t length, double magnitude) {
  const double accumulate = unit_roundoff(accumulate_dtype(dtype));
  return magnitude * (unit_roundoff(dtype) + accumulate * (8.0 + 2.0 * std::sqrt(static_cast<double>(length))));
}

/// The nearest number of `dtype`.
inline double rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat64: return value;
    case DType::kBFloat16: return static_cast<float>(BF16(static_cast<float>(value)));
    default: return static_cast<float>(value);
  }
}

/// A matrix in test memory of any floating dtype or of int32. `padding` elements follow each row, more where
/// the columns themselves are aligned, so that aligned rows stay so; they and a fresh matrix hold
/// NaN, as int32 -1, so that a kernel that reads what it may not read, or writes where it may not, is seen.
class HostMatrix {
 public:
  static constexpr int64_t kAligned = 16;  // elements; rows of other widths are odd

  HostMatrix() = default;
  HostMatrix(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + (cols % kAligned == 0 ? (padding + kAligned - 1) / kAligned * kAligned : padding)),
        bytes_(static_cast<size_t>(rows * stride_ * size_of(dtype)), 0xFF) {}

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool present() const { return !bytes_.empty(); }

  /// Views of an empty matrix are absent.
  ConstView view() const { return {present() ? bytes_.data() : nullptr, dtype_, rows_, cols_, stride_}; }
  MutView mut() { return {present() ? bytes_.data() : nullptr, dtype_, rows_, cols_, stride_}; }

  double at(int64_t r, int64_t c) const {
    const unsigned char* p = bytes_.data() + (r * stride_ + c) * size_of(dtype_);
    switch (dtype_) {
      case DType::kFloat64: return read<double>(p);
      case DType::kBFloat16: return static_cast<float>(read<BF16>(p));
      case DType::kInt32: return read<int32_t>(p);
      default: return read<float>(p);
    }
  }
  double at(int64_t i) const { return at(i / cols_, i % cols_); }

  void set(int64_t r, int64_t c, double value) {
    unsigned char* p = bytes_.data() + (r * stride_ + c) * size_of(dtype_);
    switch (dtype_) {
      case DType::kFloat64: return write(p, value);
      case DType::kBFloat16: return write(p, BF16(static_cast<float>(value)));
      case DType::kInt32: return write(p, static_cast<int32_t>(value));
      default: return write(p, static_cast<float>(value));
    }
  }
  void set(int64_t i, double value) { set(i / cols_, i % cols_, value); }

  void fill(double value) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) set(r, c, value);
    }
  }

  bool padding_untouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = (r * stride_ + cols_) * size_of(dtype_); i < (r + 1) * stride_ * size_of(dtype_); ++i) {
        if (bytes_[static_cast<size_t>(i)] != 0xFF) return false;
      }
    }
    return true;
  }

  /// Same bits, padding included.
  friend bool operator==(const HostMatrix& a, const HostMatrix& b) = default;

 private:
  template <typename T>
  static T read(const unsigned char* p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
  }
  template <typename T>
  static void write(unsigned char* p, T value) {
    std::memcpy(p, &value, sizeof(T));
  }

  DType dtype_ = DType::kFloat32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  DeviceVector<unsigned char> bytes_;
};

/// The same numbers with one bit pattern for all NaN: its sign and payload are no part of a contract.
inline HostMatrix with_one_nan(HostMatrix m) {
  for (int64_t i = 0; i < m.rows() * m.cols(); ++i)
    if (std::isnan(m.at(i))) m.set(i, std::numeric_limits<double>::quiet_NaN());
  return m;
}

/// What a kernel reads: integers, or the one struct that a step has in device memory.
using Integers = DeviceVector<int32_t>;
inline ConstView view_of(const Integers& v) {
  const auto n = static_cast<int64_t>(v.size());
  return {v.data(), DType::kInt32, 1, n, n};
}
template <typename T>
class DeviceStruct {
 public:
  explicit DeviceStruct(const T& value = {}) : value_(1, value) {}
  T& operator*() { return value_.front(); }
  T* operator->() { return &value_.front(); }
  const T* operator->() const { return &value_.front(); }
  ConstView view() const { return {value_.data(), DType::kUInt8, 1, sizeof(T), sizeof(T)}; }
  MutView mut() { return {value_.data(), DType::kUInt8, 1, sizeof(T), sizeof(T)}; }

 private:
  DeviceVector<T> value_;
};

/// Normal numbers with the given mean and deviation, rounded to `dtype`: the same for every dtype up to that rounding.
inline HostMatrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t padding = 0,
                                double mean = 0, double deviation = 1) {
  HostMatrix m(dtype, rows, cols, padding);
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(mean, deviation);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) m.set(r, c, normal(generator));
  }
  return m;
}

}  // namespace ashlar::test
