#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

class LinearActivationTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

// Against the formulas: the activation may read the product before or after its rounding.
TEST_F(LinearActivationTest, IsTheProductAndItsActivation) {
  constexpr int64_t kInner = 37;
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      for (const Activation kind :
           {Activation::kRelu, Activation::kSilu, Activation::kGeluTanh, Activation::kIdentity}) {
        for (const bool biased : {false, true}) {
          SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] ", static_cast<int>(kind), biased));
          const HostMatrix x = random_matrix(dtype, s.rows, kInner, 1, 3);
          const HostMatrix w = random_matrix(dtype, s.cols, kInner, 2, 1, 0, 0.2);
          const HostMatrix bias = biased ? random_matrix(dtype, 1, s.cols, 3) : HostMatrix();
          HostMatrix product(DType::kFloat64, s.rows, s.cols), size(DType::kFloat64, s.rows, s.cols);
          for (int64_t r = 0; r < s.rows; ++r) {
            for (int64_t c = 0; c < s.cols; ++c) {
              double sum = biased ? bias.at(c) : 0, terms = std::abs(sum);
              for (int64_t k = 0; k < kInner; ++k) {
                sum += x.at(r, k) * w.at(c, k);
                terms += std::abs(x.at(r, k) * w.at(c, k));
              }
              product.set(r, c, sum);
              size.set(r, c, terms);
            }
          }
          backends_.each(
              [&](Backend& backend) {
                Outputs out = {HostMatrix(dtype, s.rows, s.cols, 5), HostMatrix(dtype, s.rows, s.cols, 7)};
                backend.linear_activation(
                    {.linear = {.x = x.view(), .w = w.view(), .bias = bias.view(), .y = out[0].mut()},
                     .y = out[1].mut(),
                     .kind = kind},
                    backends_.stream());
                return out;
              },
              [&](const Outputs& out) {
                const auto pre = [&](int64_t r, int64_t c) { return product.at(r, c); };
                const auto terms = [&](int64_t r, int64_t c) { return size.at(r, c); };
                expect_near(out[0], kInner, pre, terms, "product");
                // No slope is above 1.13: an error of the product grows by no more.
                expect_near(
                    out[1], kInner,
                    [&](int64_t r, int64_t c) {
                      const double p = pre(r, c);
                      if (kind == Activation::kIdentity) return p;
                      if (kind == Activation::kRelu) return std::max(p, 0.0);
                      if (kind == Activation::kSilu) return p / (1 + std::exp(-p));
                      return p / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (p + 0.044715 * p * p * p)));
                    },
                    [&](int64_t r, int64_t c) { return 2.26 * terms(r, c); }, "activated");
              });
        }
      }
    }
  }
}

TEST_F(LinearActivationTest, KeepsTheProductInStorage) {
  const HostMatrix x = random_matrix(DType::kBFloat16, 2, 3, 1), w = random_matrix(DType::kBFloat16, 4, 3, 2);
  HostMatrix wide(DType::kFloat32, 2, 4), y(DType::kBFloat16, 2, 4);
  EXPECT_THROW(
      backends_.one().linear_activation(
          {.linear = {.x = x.view(), .w = w.view(), .bias = {}, .y = wide.mut()}, .y = y.mut()}, backends_.stream()),
      Bug);
}

}  // namespace
}  // namespace ashlar::test
