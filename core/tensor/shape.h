#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace ashlar {

/// A shape with up to four dimensions. The last dimension is the row length ("cols"); the product of all other
/// dimensions is "rows".
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    ASHLAR_CHECK(dims.size() <= kMaxRank, "rank ", dims.size());
    for (const int64_t d : dims) dims_[rank_++] = d;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t size() const { return rows() * cols(); }
  int64_t cols() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank_; ++i) n *= dims_[i];
    return n;
  }
  std::vector<int64_t> dims() const { return {dims_.begin(), dims_.begin() + rank_}; }
  bool operator==(const Shape&) const = default;
  std::string str() const;  ///< returns e.g. "[2, 3, 48]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace ashlar

/// Checks a tensor's or view's shape at the entry of a function: ASHLAR_SHAPE(x, {B * T, C}).
#define ASHLAR_SHAPE(tensor, ...)                                                                            \
  do {                                                                                                       \
    const ::ashlar::Shape ashlar_expected __VA_ARGS__;                                                       \
    ASHLAR_CHECK((tensor).shape() == ashlar_expected, #tensor " is ", (tensor).shape().str(), ", expected ", \
                 ashlar_expected.str());                                                                     \
  } while (false)
