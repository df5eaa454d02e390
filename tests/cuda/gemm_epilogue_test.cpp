// What follows a product where the library's epilogue does not serve: bias, what is there, one rounding.
#include "kernels/cuda/gemm/gemm_epilogue.h"

#include <gtest/gtest.h>

#include <memory>

#include "kernels/cuda/host/launch_kernel.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::emulated {
namespace {

using test::HostMatrix;
using test::random_matrix;

class GemmFinishTest : public ::testing::Test {
 protected:
  Device device_{DeviceOptions{}};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
};

TEST_F(GemmFinishTest, AddsInTheAccumulateTypeAndRoundsOnce) {
  for (const test::Shape& shape : {test::Shape{1, 1}, {3, 33}, {7, 257}, {70, 64}}) {
    for (const DType dtype : test::kStorageDTypes) {
      for (const DType bias_dtype : {dtype, accumulate_dtype(dtype)}) {
        for (int kind = 0; kind < 8; ++kind) {
          const bool with_sums = (kind & 1) != 0, with_bias = (kind & 2) != 0, accumulate = (kind & 4) != 0;
          SCOPED_TRACE(str_cat(name_of(dtype), " ", name_of(bias_dtype), " ", shape.rows, " ", shape.cols, " ", kind));
          const HostMatrix sums = random_matrix(accumulate_dtype(dtype), shape.rows, shape.cols, 1, 3),
                           bias = random_matrix(bias_dtype, 1, shape.cols, 2);
          HostMatrix c = random_matrix(dtype, shape.rows, shape.cols, 3, 5);
          const HostMatrix before = c;
          GemmEpilogue args{.c = c.mut(), .accumulate = accumulate};
          if (with_sums) args.sums = sums.view();
          if (with_bias) args.bias = bias.view();
          gemm_epilogue(args, *stream_);
          stream_->synchronize();
          const auto narrow = [&](double v) { return test::rounded(accumulate_dtype(dtype), v); };
          for (int64_t i = 0; i < shape.rows; ++i) {
            for (int64_t j = 0; j < shape.cols; ++j) {
              double value = with_sums ? sums.at(i, j) : 0;
              if (with_bias) value = narrow(value + bias.at(j));
              if (accumulate) value = narrow(value + before.at(i, j));
              ASSERT_EQ(c.at(i, j), test::rounded(dtype, value)) << i << ", " << j;
            }
          }
          EXPECT_TRUE(c.padding_untouched());
        }
      }
    }
  }
}

TEST_F(GemmFinishTest, CountsEveryDifference) {
  constexpr int64_t kWords = 70001;
  test::DeviceVector<uint16_t> a(kWords, 7), b(kWords, 7);
  test::DeviceVector<uint32_t> count(1, 5);
  for (const int64_t at : {int64_t{0}, int64_t{31}, int64_t{40000}, kWords - 1}) b[static_cast<size_t>(at)] = 8;
  count_differences(a.data(), b.data(), kWords * 2, count.data(), *stream_);
  stream_->synchronize();
  EXPECT_EQ(count[0], 9U);
}

}  // namespace
}  // namespace ashlar::emulated
