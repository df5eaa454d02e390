#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/device/allocator.h"
#include "core/tensor/view.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// A matrix product c (+)= op(a) op(b) [+ bias]. Every operand may have a row stride.
struct GemmArgs {
  ConstView a;               ///< [m, k], or [k, m] with transpose_a; storage dtype, read
  ConstView b;               ///< [k, n], or [n, k] with transpose_b; storage dtype, read
  ConstView bias;            ///< [n] storage or accumulate dtype, read, or absent; not with `accumulate`
  MutView c;                 ///< [m, n] storage or accumulate dtype, written or accumulated
  bool transpose_a = false;  ///< at most one of transpose_a and transpose_b may be true
  bool transpose_b = false;
  bool accumulate = false;

  int64_t m() const { return c.rows; }
  int64_t n() const { return c.cols; }
  int64_t k() const { return transpose_a ? a.rows : a.cols; }
};

/// Runs matrix products. Sums are fp32 (fp64 for fp64) and are rounded once, at the store. A row of the result has the
/// same bits for any number of threads and of other rows. Scratch memory comes from `workspace`. Not thread-safe.
class Gemm {
 public:
  Gemm(Isa isa, Threads& threads, Allocator& workspace);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Throws Bug for mismatching shapes or dtypes, resource_error when the workspace is exhausted.
  void run(const GemmArgs& args);
  /// Runs products of one storage dtype, none of which is empty or reads or writes what another writes. Small products
  /// run side by side.
  void run_all(std::span<const GemmArgs> products);

  std::string description() const;  ///< for the log
  int64_t num_runs() const { return num_runs_; }

 private:
  Isa isa_;
  Threads& threads_;
  Allocator& workspace_;
  int64_t num_runs_ = 0;
};

}  // namespace ashlar::cpu
