// The device's matrix product beyond what the cases of linear ask for: strided operands, every transposition, the
// epilogue with an activation, and what it refuses.
#include "kernels/cuda/gemm/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::emulated {
namespace {

using test::HostMatrix;
using test::random_matrix;
using ::testing::HasSubstr;

class GemmTest : public ::testing::Test {
 protected:
  void run(const Gemm& args) {
    gemm(device_, args, *stream_);
    stream_->synchronize();
  }

  Device device_{DeviceOptions{}};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
};

TEST_F(GemmTest, MultipliesEveryTranspositionOfStridedRows) {
  constexpr int64_t n = 21, k = 35, m = 34;
  for (const DType dtype : test::kStorageDTypes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(str_cat(name_of(dtype), " ", ta, tb, accumulate));
          const HostMatrix a = ta ? random_matrix(dtype, k, n, 1, 3) : random_matrix(dtype, n, k, 1, 5);
          const HostMatrix b = tb ? random_matrix(dtype, m, k, 2, 1) : random_matrix(dtype, k, m, 2, 7);
          const HostMatrix bias = random_matrix(dtype, 1, m, 3);
          HostMatrix c = random_matrix(accumulate_dtype(dtype), n, m, 4, 2);
          const HostMatrix before = c;
          run({.a = a.view(),
               .b = b.view(),
               .bias = bias.view(),
               .c = c.mut(),
               .transpose_a = ta,
               .transpose_b = tb,
               .accumulate = accumulate});
          for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < m; ++j) {
              double sum = bias.at(j), size = std::abs(sum);
              const auto add = [&](double term) { sum += term, size += std::abs(term); };
              if (accumulate) add(before.at(i, j));
              for (int64_t p = 0; p < k; ++p) add((ta ? a.at(p, i) : a.at(i, p)) * (tb ? b.at(j, p) : b.at(p, j)));
              ASSERT_NEAR(c.at(i, j), sum, test::tolerance(c.dtype(), k, size)) << i << ", " << j;
            }
          }
          EXPECT_TRUE(c.padding_untouched());
        }
      }
    }
  }
}

// The activation reads the sum before its rounding: closer to the formula than the two calls are.
TEST_F(GemmTest, ActivatesTheUnroundedSum) {
  constexpr int64_t n = 17, k = 40, m = 23;
  for (const DType dtype : test::kStorageDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const HostMatrix a = random_matrix(dtype, n, k, 1), b = random_matrix(dtype, m, k, 2, 0, 0, 0.2);
    HostMatrix c(dtype, n, m, 3), pre(dtype, n, m, 1);
    run({.a = a.view(), .b = b.view(), .c = c.mut(), .pre = pre.mut(), .transpose_b = true});
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) sum += a.at(i, p) * b.at(j, p), size += std::abs(a.at(i, p) * b.at(j, p));
        ASSERT_NEAR(pre.at(i, j), sum, test::tolerance(dtype, k, size));
        const double u = std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum), y = sum / 2 * (1 + std::tanh(u));
        // One rounding of y itself, and the fp32 error of the sum under a slope below 1.13.
        const double allowed = test::unit_roundoff(dtype) * std::abs(y) +
                               1.13 * test::tolerance(accumulate_dtype(dtype), k, size) +
                               8 * test::unit_roundoff(accumulate_dtype(dtype)) * (1 + std::abs(y));
        ASSERT_NEAR(c.at(i, j), y, allowed) << i << ", " << j;
      }
    }
  }
}

TEST_F(GemmTest, CountsAndChecks) {
  const HostMatrix a = random_matrix(DType::kBFloat16, 4, 6, 1), b = random_matrix(DType::kBFloat16, 6, 3, 2);
  HostMatrix c(DType::kFloat32, 4, 3), narrow(DType::kFloat32, 4, 2), wide(DType::kFloat64, 4, 3);
  run({.a = a.view(), .b = b.view(), .c = c.mut()});
  EXPECT_EQ(device_.num_gemms(), 1);
  EXPECT_THROW(run({.a = a.view(), .b = b.view(), .c = narrow.mut()}), Bug);
  EXPECT_THROW(run({.a = a.view(), .b = b.view(), .c = wide.mut()}), Bug);
  EXPECT_THROW(run({.a = a.view(), .b = b.view(), .c = c.mut(), .pre = narrow.mut(), .accumulate = true}), Bug);
}

}  // namespace
}  // namespace ashlar::emulated
