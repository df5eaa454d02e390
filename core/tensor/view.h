#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace ashlar {

/// A kernel input: a matrix [rows, cols] with a row stride, in memory that the view does not own. A vector has one row.
/// A default-constructed view is absent, and converts to false.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements from one row to the next, >= cols

  bool operator==(const ConstView&) const = default;
  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || stride == cols; }

  template <typename T>
  const T* as() const {
    ASHLAR_CHECK(dtype == DTypeOf<T>::value, "view holds ", name_of(dtype), ", asked for ", name_of(DTypeOf<T>::value));
    return static_cast<const T*>(data);
  }
};

/// A kernel output: a matrix that a kernel overwrites or to which it adds.
struct MutView {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  explicit operator bool() const { return data != nullptr; }
  operator ConstView() const { return {data, dtype, rows, cols, stride}; }  // NOLINT: an output may always be read
  int64_t size() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || stride == cols; }

  template <typename T>
  T* as() const {
    ASHLAR_CHECK(dtype == DTypeOf<T>::value, "view holds ", name_of(dtype), ", asked for ", name_of(DTypeOf<T>::value));
    return static_cast<T*>(data);
  }
};

template <typename T>
concept AnyView = std::is_same_v<T, ConstView> || std::is_same_v<T, MutView>;

/// Returns the elements [begin, begin + count) of a contiguous view as a vector.
template <AnyView View>
View flat_range(const View& v, int64_t begin, int64_t count) {
  ASHLAR_CHECK(v.contiguous() && begin >= 0 && count >= 0 && begin + count <= v.size(), "elements ", begin, " + ",
               count, " of ", v.size());
  using Byte = std::conditional_t<std::is_same_v<View, MutView>, char, const char>;
  return {static_cast<Byte*>(v.data) + begin * size_of(v.dtype), v.dtype, 1, count, count};
}

/// Returns the rows [begin, begin + count) of a view.
template <AnyView View>
View row_range(const View& v, int64_t begin, int64_t count) {
  ASHLAR_CHECK(begin >= 0 && count >= 0 && begin + count <= v.rows, "rows ", begin, " + ", count, " of ", v.rows);
  using Byte = std::conditional_t<std::is_same_v<View, MutView>, char, const char>;
  return {static_cast<Byte*>(v.data) + begin * v.stride * size_of(v.dtype), v.dtype, count, v.cols, v.stride};
}

/// Returns the columns [begin, begin + count) of a view.
template <AnyView View>
View column_range(const View& v, int64_t begin, int64_t count) {
  ASHLAR_CHECK(begin >= 0 && count >= 0 && begin + count <= v.cols, "columns ", begin, " + ", count, " of ", v.cols);
  using Byte = std::conditional_t<std::is_same_v<View, MutView>, char, const char>;
  return {static_cast<Byte*>(v.data) + begin * size_of(v.dtype), v.dtype, v.rows, count, v.stride};
}

/// Checks that the view can be one struct T: contiguous kUInt8 [sizeof(T)] with the alignment of T.
template <typename T>
void check_struct(const ConstView& v) {
  static_assert(std::is_trivially_copyable_v<T>);
  ASHLAR_CHECK(
      v.data != nullptr && v.dtype == DType::kUInt8 && v.contiguous() && v.size() == static_cast<int64_t>(sizeof(T)),
      "expected uint8 [", sizeof(T), "], got ", v.data == nullptr ? "nothing" : name_of(v.dtype), " [", v.size(), "]");
  ASHLAR_CHECK(reinterpret_cast<uintptr_t>(v.data) % alignof(T) == 0, "expected an aligned struct");
}
/// Returns the struct T in device memory to which the view points. Only kernels may read it.
template <typename T>
const T& struct_of(const ConstView& v) {
  check_struct<T>(v);
  return *static_cast<const T*>(v.data);
}
/// Returns a view as a table of structs T in device memory. Only kernels may read its entries.
template <typename T>
std::span<const T> table_of(const ConstView& v) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  ASHLAR_CHECK(v.dtype == DType::kUInt8 && v.contiguous() && v.size() % kSize == 0, "expected a table of ", kSize,
               " bytes an entry, got ", name_of(v.dtype), " [", v.size(), "]");
  return {static_cast<const T*>(v.data), static_cast<size_t>(v.size() / kSize)};
}
template <typename T>
T& struct_of(const MutView& v) {
  check_struct<T>(v);
  return *static_cast<T*>(v.data);
}

}  // namespace ashlar
