#include "core/backend/linear_activation.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemm/gemm.h"

// A product, its bias and the activation. gelu_tanh is an epilogue of the product if the library supports it (it uses
// the pre-activation before rounding); other activations read the product's result again: 2*N*M more bytes of reads
// than an epilogue, a few percent of the product's time from K = 1024 up.

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
