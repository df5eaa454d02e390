#include "core/backend/linear_activation.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemm/gemm.h"

// A matrix product with bias and activation. gelu_tanh is an epilogue of the product if cublasLt supports it; the
// epilogue uses the pre-activation before rounding. Other activations are a second kernel that reads the product again.
// For N rows, K inputs and M outputs in bf16 it reads 2*N*M bytes that an epilogue does not read. For K >= 1024 this
// takes a few percent of the product's time.

namespace ashlar::ASHLAR_DEV {

void CudaBackend::launch(const LinearActivation& args, Stream& stream) {
  const LinearForward& linear = args.linear;
  const Gemm fused{
      .a = linear.x, .b = linear.w, .bias = linear.bias, .c = args.y, .pre = linear.y, .transpose_b = true};
  if (args.kind == Activation::kGeluTanh && fuses_gelu(device_, fused)) return gemm(device_, fused, stream);
  launch(linear, stream);
  launch(ActivationForward{.x = linear.y, .up = {}, .y = args.y, .kind = args.kind}, stream);
}

}  // namespace ashlar::ASHLAR_DEV
