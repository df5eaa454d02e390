#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/device/allocator.h"
#include "core/tensor/view.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// c (+)= op(a) op(b) [+ bias], rows of every operand may be strided.
struct GemmArgs {
  ConstView a;               ///< [m, k], or [k, m] with transpose_a; storage dtype, read
  ConstView b;               ///< [k, n], or [n, k] with transpose_b; storage dtype, read
  ConstView bias;            ///< [n] storage or accumulate dtype, read, or absent; only to overwrite
  MutView c;                 ///< [m, n] storage or accumulate dtype, written or accumulated
  bool transpose_a = false;  ///< at most one of the two
  bool transpose_b = false;
  bool accumulate = false;

  int64_t m() const { return c.rows; }
  int64_t n() const { return c.cols; }
  int64_t k() const { return transpose_a ? a.rows : a.cols; }
};

/// Who computes a product.
enum class GemmPath : uint8_t {
  kAuto,    ///< the rule in gemm.cpp
  kOwn,     ///< packed kernels of this folder: any shape, stride, dtype
  kOneDnn,  ///< oneDNN primitives, where one serves the call
};
std::string_view name_of(GemmPath path);

/// The one door to matrix products. Sums are fp32 (fp64 for fp64), one rounding at the store.
/// The path is a fixed function of shape, dtype, strides, instruction set and thread count, never of time, so equal
/// calls give equal bits; the own kernels give the same bits for any thread count and any number of rows.
/// Scratch comes from `workspace`, primitives are made once a shape and kept. Not thread-safe.
class Gemm {
 public:
  Gemm(Isa isa, int threads, Allocator& workspace);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Throws Bug when shapes or dtypes do not fit together or the asked path cannot serve them, resource_error when the
  /// workspace is exhausted.
  void run(const GemmArgs& args, GemmPath path = GemmPath::kAuto);

  /// The path that `run` takes for kAuto; for kOneDnn, whether oneDNN can serve the call at all: kOwn when not.
  GemmPath path_for(const GemmArgs& args, GemmPath wanted = GemmPath::kAuto);

  std::string description() const;  ///< for the log

 private:
  struct OneDnn;

  Isa isa_;
  int threads_;
  Allocator& workspace_;
  std::unique_ptr<OneDnn> onednn_;
};

}  // namespace ashlar::cpu
