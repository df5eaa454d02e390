#include "core/backend/linear.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/column_sums.h"
#include "kernels/cpu/gemm/gemm.h"

// Forward and the two gradients of a linear layer are one matrix product each: 2*N*M*K flops for N rows, K inputs and M
// outputs. They are bound by the FMA rate, or for a few rows by reading w. gemm/packed_gemm.cpp describes the
// algorithm.

namespace ashlar::cpu {

void CpuBackend::launch(const LinearForward& args, Stream&) {
  gemm_->run({.a = args.x, .b = args.w, .bias = args.bias, .c = args.y, .transpose_b = true});
}

void CpuBackend::launch(const LinearActivation& args, Stream& stream) {
  launch(args.linear, stream);
  launch(ActivationForward{.x = args.linear.y, .up = {}, .y = args.y, .kind = args.kind}, stream);
}

void CpuBackend::launch(const LinearBackwardInput& args, Stream&) {
  gemm_->run({.a = args.dy, .b = args.w, .bias = {}, .c = args.dx, .accumulate = args.mode == GradMode::kAccumulate});
}

void CpuBackend::launch(const LinearBackwardWeight& args, Stream&) {
  const bool accumulate = args.mode == GradMode::kAccumulate;
  // 1. dw
  if (args.dw) {
    gemm_->run({.a = args.dy, .b = args.x, .bias = {}, .c = args.dw, .transpose_a = true, .accumulate = accumulate});
  }
  // 2. dbias
  if (args.dbias) column_sums(args.dy, args.dbias, accumulate, info_.isa, threads_);
}

}  // namespace ashlar::cpu
