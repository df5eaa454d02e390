#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace ashlar::cuda {

struct Gemm;

/// Everything on which cublasLt's choice of an algorithm may depend: dtypes, shapes, strides and alignments of a
/// product. An alignment is the largest power of two up to 256 that divides the address, or 0 for an absent operand.
struct GemmKey {
  DType storage = DType::kFloat32, result = DType::kFloat32;
  int64_t n = 0, m = 0, k = 0;
  int64_t transpose_a = 0, transpose_b = 0, accumulate = 0;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0, stride_pre = 0;
  int64_t align_a = 0, align_b = 0, align_c = 0, align_bias = 0, align_pre = 0;

  static GemmKey of(const Gemm& gemm);
  /// Converts a key to text, such as "bf16 fp32 n=1024 m=768 ...". The text names the product in section "gemm" of
  /// TunedChoices.
  std::string text() const;
  /// Converts the result of text() back to a key. Throws a damaged-data error for any other text.
  static GemmKey parse(std::string_view text);

  bool operator==(const GemmKey&) const = default;
};

struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const;
};

}  // namespace ashlar::cuda
