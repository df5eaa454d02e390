// The CPU's fused kernels have the bits of the calls that they stand for.
#include <gtest/gtest.h>

#include "kernels/make_backend.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::test {
namespace {

TEST(FusedKernels, LinearActivationHasTheBitsOfItsParts) {
  const std::unique_ptr<Backend> cpu = kernels::make_backend({.threads = 2});
  const std::unique_ptr<Stream> stream = cpu->make_stream();
  for (const DType dtype : kStorageDTypes) {
    const HostMatrix x = random_matrix(dtype, 43, 65, 1), w = random_matrix(dtype, 257, 65, 2),
                     bias = random_matrix(dtype, 1, 257, 3);
    HostMatrix product[2], y[2];
    for (int i = 0; i < 2; ++i) product[i] = y[i] = HostMatrix(dtype, 43, 257, 3);
    const auto linear = [&](int i) {
      return LinearForward{.x = x.view(), .w = w.view(), .bias = bias.view(), .y = product[i].mut()};
    };
    cpu->linear_activation({.linear = linear(0), .y = y[0].mut(), .kind = Activation::kGeluErf}, *stream);
    cpu->linear_forward(linear(1), *stream);
    cpu->activation_forward({.x = product[1].view(), .up = {}, .y = y[1].mut(), .kind = Activation::kGeluErf}, *stream);
    EXPECT_TRUE(product[0] == product[1]) << name_of(dtype);
    EXPECT_TRUE(y[0] == y[1]) << name_of(dtype);
  }
}

}  // namespace
}  // namespace ashlar::test
