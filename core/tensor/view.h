#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace ashlar {

/// What a kernel reads: a matrix [rows, cols] with a row stride in elements (a vector is one row).
/// Not owning; a default-constructed view means "absent" and is false.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements from one row to the next, >= cols

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || stride == cols; }

  template <typename T>
  const T* as() const {
    ASHLAR_CHECK(dtype == DTypeOf<T>::value, "view holds ", name_of(dtype), ", asked for ", name_of(DTypeOf<T>::value));
    return static_cast<const T*>(data);
  }
};

/// What a kernel writes or accumulates into.
struct MutView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  explicit operator bool() const { return data != nullptr; }
  operator ConstView() const { return {data, dtype, rows, cols, stride}; }  // NOLINT: a writer may always be read
  int64_t size() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || stride == cols; }

  template <typename T>
  T* as() const {
    ASHLAR_CHECK(dtype == DTypeOf<T>::value, "view holds ", name_of(dtype), ", asked for ", name_of(DTypeOf<T>::value));
    return static_cast<T*>(data);
  }
};

}  // namespace ashlar
