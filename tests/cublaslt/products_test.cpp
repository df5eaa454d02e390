// Products by the library, against fp64: row-major matrices with strides, in every transposition, dtype and epilogue.
#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "tests/cublaslt/on_device.h"

namespace ashlar::cuda {
namespace {

using test::HostMatrix;
using test::random_matrix;
using ::testing::HasSubstr;

double gelu(double x) { return x / 2 * (1 + std::tanh(0.7978845608028653559 * (x + 0.044715 * x * x * x))); }

/// What a product sums up to, and the sum of its terms' absolute values.
struct Sum {
  double value = 0, size = 0;
  void add(double term) { value += term, size += std::abs(term); }
};
Sum element(const HostMatrix& a, bool ta, const HostMatrix& b, bool tb, int64_t k, int64_t i, int64_t j) {
  Sum sum;
  for (int64_t p = 0; p < k; ++p) sum.add((ta ? a.at(p, i) : a.at(i, p)) * (tb ? b.at(j, p) : b.at(p, j)));
  return sum;
}

TEST_F(CublasLtTest, MultipliesEveryTranspositionOfStridedRows) {
  constexpr int64_t n = 21, k = 35, m = 34;
  for (const DType dtype : test::kStorageDTypes) {
    for (const DType result : {dtype, accumulate_dtype(dtype)}) {
      for (int kind = 0; kind < 8; ++kind) {
        const bool ta = (kind & 1) != 0, tb = (kind & 2) != 0, accumulate = (kind & 4) != 0;
        SCOPED_TRACE(str_cat(name_of(dtype), " ", name_of(result), " ", ta, tb, accumulate));
        const HostMatrix a = ta ? random_matrix(dtype, k, n, 1, 3) : random_matrix(dtype, n, k, 1, 5);
        const HostMatrix b = tb ? random_matrix(dtype, m, k, 2, 1) : random_matrix(dtype, k, m, 2, 7);
        const HostMatrix before = random_matrix(result, n, m, 4, 2);
        const DeviceMatrix da = on_device(a), db = on_device(b), dc = on_device(before);
        run({.a = da, .b = db, .c = dc.mut(), .transpose_a = ta, .transpose_b = tb, .accumulate = accumulate});
        const HostMatrix c = dc.read();
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < m; ++j) {
            Sum sum = element(a, ta, b, tb, k, i, j);
            if (accumulate) sum.add(before.at(i, j));
            ASSERT_NEAR(c.at(i, j), sum.value, test::tolerance(result, k, sum.size)) << i << ", " << j;
          }
        }
        EXPECT_TRUE(c.padding_untouched());
      }
    }
  }
}

// Shapes of a model whose rows are aligned to nothing, and of one row or column.
TEST_F(CublasLtTest, MultipliesOddShapesAtOddAddresses) {
  struct Shape {
    int64_t n, m, k;
  };
  for (const Shape& s : {Shape{1, 1, 1}, {1, 64, 33}, {65, 1, 7}, {3, 257, 1}, {16, 32, 64}}) {
    for (const DType dtype : test::kStorageDTypes) {
      SCOPED_TRACE(str_cat(name_of(dtype), " ", s.n, " ", s.m, " ", s.k));
      const HostMatrix a = random_matrix(dtype, s.n, s.k, 1), b = random_matrix(dtype, s.m, s.k, 2);
      const DeviceMatrix da = on_device(a, 1), db = on_device(b, 3), dc = on_device(HostMatrix(dtype, s.n, s.m), 5);
      MutView row = da.mut();
      if (s.n == 1) row.stride = 0;  // which a matrix of one row may have, and a leading dimension may not
      run({.a = row, .b = db, .c = dc.mut(), .transpose_b = true});
      const HostMatrix c = dc.read();
      for (int64_t i = 0; i < s.n; ++i) {
        for (int64_t j = 0; j < s.m; ++j) {
          const Sum sum = element(a, false, b, true, s.k, i, j);
          ASSERT_NEAR(c.at(i, j), sum.value, test::tolerance(dtype, s.k, sum.size)) << i << ", " << j;
        }
      }
    }
  }
}

// A bias of the result's dtype is the library's; another one, or fp64, is added to sums that are not rounded yet.
TEST_F(CublasLtTest, AddsABiasOfEitherDType) {
  constexpr int64_t n = 9, k = 40, m = 24;
  for (const DType dtype : test::kStorageDTypes) {
    for (const DType bias_dtype : {dtype, accumulate_dtype(dtype)}) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(str_cat(name_of(dtype), " ", name_of(bias_dtype), " ", accumulate));
        const HostMatrix a = random_matrix(dtype, n, k, 1), b = random_matrix(dtype, m, k, 2),
                         bias = random_matrix(bias_dtype, 1, m, 3), before = random_matrix(dtype, n, m, 4, 8);
        const DeviceMatrix da = on_device(a), db = on_device(b), dbias = on_device(bias), dc = on_device(before);
        run({.a = da, .b = db, .bias = dbias, .c = dc.mut(), .transpose_b = true, .accumulate = accumulate});
        const HostMatrix c = dc.read();
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < m; ++j) {
            Sum sum = element(a, false, b, true, k, i, j);
            sum.add(bias.at(j));
            if (accumulate) sum.add(before.at(i, j));
            ASSERT_NEAR(c.at(i, j), sum.value, test::tolerance(dtype, k, sum.size)) << i << ", " << j;
          }
        }
        EXPECT_TRUE(c.padding_untouched());
      }
    }
  }
}

// (1 + 2^-7)^2 + 2^-8 = 1 + 2^-6 + 2^-8 + 2^-14: above the middle of two neighbours in bf16, and on it once the product
// alone has been rounded.
TEST_F(CublasLtTest, RoundsAProductAndItsBiasOnce) {
  HostMatrix a(DType::kBFloat16, 1, 1), bias(DType::kFloat32, 1, 1), c(DType::kBFloat16, 1, 1);
  a.set(0, 0, 1 + 0x1p-7);
  bias.set(0, 0, 0x1p-8);
  c.set(0, 0, 0);
  const DeviceMatrix da = on_device(a), dbias = on_device(bias), dc = on_device(c);
  run({.a = da, .b = da, .bias = dbias, .c = dc.mut()});
  EXPECT_EQ(dc.read().at(0, 0), 1 + 0x1p-6 + 0x1p-7);
}

TEST_F(CublasLtTest, ActivatesWhereTheLibraryCan) {
  constexpr int64_t n = 7, k = 48, m = 40;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(str_cat(name_of(dtype), " ", with_bias));
      const HostMatrix a = random_matrix(dtype, n, k, 1), b = random_matrix(dtype, m, k, 2, 0, 0, 0.2),
                       bias = random_matrix(dtype, 1, m, 3);
      const DeviceMatrix da = on_device(a), db = on_device(b), dbias = on_device(bias),
                         dc = on_device(HostMatrix(dtype, n, m, 3)), dpre = on_device(HostMatrix(dtype, n, m, 8));
      Gemm g{.a = da, .b = db, .c = dc.mut(), .pre = dpre.mut(), .transpose_b = true};
      if (with_bias) g.bias = dbias;
      ASSERT_TRUE(fuses_gelu(*device_, g));
      run(g);
      const HostMatrix c = dc.read(), pre = dpre.read();
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) {
          Sum sum = element(a, false, b, true, k, i, j);
          if (with_bias) sum.add(bias.at(j));
          ASSERT_NEAR(pre.at(i, j), sum.value, test::tolerance(dtype, k, sum.size));
          const double slope = 1.13;  // the largest of gelu
          ASSERT_NEAR(c.at(i, j), gelu(sum.value), slope * test::tolerance(dtype, k, sum.size) + 1e-6);
        }
      }
      EXPECT_TRUE(c.padding_untouched() && pre.padding_untouched());
    }
  }
}

// The vendor's rules: an aux address divisible by 16, its leading dimension by 8, no epilogue in fp64, a bias as d.
TEST_F(CublasLtTest, DoesNotAskForAnActivationThatTheLibraryRefuses) {
  const auto fuses = [&](DType dtype, int64_t m, int64_t padding, int64_t offset, DType bias) {
    const DeviceMatrix a = on_device(random_matrix(dtype, 4, 16, 1)), b = on_device(random_matrix(dtype, m, 16, 2)),
                       c = on_device(HostMatrix(dtype, 4, m)), row = on_device(random_matrix(bias, 1, m, 3)),
                       pre = on_device(HostMatrix(dtype, 4, m, padding), offset);
    return fuses_gelu(*device_, {.a = a, .b = b, .bias = row, .c = c.mut(), .pre = pre.mut(), .transpose_b = true});
  };
  // By the rules, without a question that a library might answer otherwise.
  const auto refuses = [&](DType dtype, int64_t m, int64_t padding, int64_t offset, DType bias) {
    const long asked = library_calls("heuristic");
    return !fuses(dtype, m, padding, offset, bias) && library_calls("heuristic") == asked;
  };
  constexpr DType kBf16 = DType::kBFloat16, kFp32 = DType::kFloat32, kFp64 = DType::kFloat64;
  EXPECT_TRUE(fuses(kBf16, 32, 0, 0, kBf16));
  EXPECT_TRUE(fuses(kBf16, 32, 0, 8, kBf16));
  EXPECT_TRUE(refuses(kBf16, 32, 0, 4, kBf16)) << "an address divisible by 8 only";
  EXPECT_TRUE(refuses(kBf16, 30, 0, 0, kBf16)) << "a stride of 30";
  EXPECT_TRUE(fuses(kBf16, 30, 2, 0, kBf16));
  EXPECT_TRUE(refuses(kBf16, 32, 0, 0, kFp32)) << "a bias of another dtype";
  EXPECT_TRUE(fuses(kFp32, 32, 0, 0, kFp32));
  EXPECT_TRUE(refuses(kFp64, 32, 0, 0, kFp64)) << "fp64";
  start("", "no_gelu=1");
  EXPECT_FALSE(fuses(kBf16, 32, 0, 0, kBf16)) << "a library that has none";
}

TEST_F(CublasLtTest, SumsOverNothingAreZeroOrWhatWasThere) {
  for (const bool accumulate : {false, true}) {
    const HostMatrix before = random_matrix(DType::kBFloat16, 3, 8, 1), bias = random_matrix(DType::kBFloat16, 1, 8, 2);
    const DeviceMatrix dc = on_device(before), dbias = on_device(bias);
    const ConstView empty{dc.mut().data, DType::kBFloat16, 3, 0, 0}, none{dc.mut().data, DType::kBFloat16, 8, 0, 0};
    run({.a = empty, .b = none, .bias = dbias, .c = dc.mut(), .transpose_b = true, .accumulate = accumulate});
    const HostMatrix c = dc.read();
    for (int64_t i = 0; i < before.rows(); ++i) {
      for (int64_t j = 0; j < before.cols(); ++j) {
        const double expected = bias.at(j) + (accumulate ? before.at(i, j) : 0);
        ASSERT_EQ(c.at(i, j), test::rounded(DType::kBFloat16, expected));
      }
    }
  }
  EXPECT_EQ(library_calls("matmul"), 0);
}

TEST_F(CublasLtTest, ASteadyStepAsksTheLibraryNothingAndAllocatesNothing) {
  const DeviceMatrix a = on_device(random_matrix(DType::kBFloat16, 32, 64, 1)),
                     b = on_device(random_matrix(DType::kBFloat16, 48, 64, 2)),
                     c = on_device(random_matrix(DType::kFloat32, 32, 48, 3)),
                     bias = on_device(random_matrix(DType::kBFloat16, 1, 48, 4));
  const auto step = [&] {
    run({.a = a, .b = b, .c = c.mut(), .transpose_b = true, .accumulate = true});
    run({.a = a, .b = b, .bias = bias, .c = c.mut(), .transpose_b = true});  // by sums in scratch memory
  };
  step();
  const long searches = library_calls("heuristic"), allocations = ashlar_stand_in_calls("cudaMalloc");
  const int64_t system_calls = device_->allocator(MemoryKind::kWorkspace).num_system_calls();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(library_calls("heuristic"), searches);
  EXPECT_EQ(ashlar_stand_in_calls("cudaMalloc"), allocations);
  EXPECT_EQ(device_->allocator(MemoryKind::kWorkspace).num_system_calls(), system_calls);
  EXPECT_EQ(device_->num_gemms(), 12);
}

TEST_F(CublasLtTest, RefusesWhatDoesNotFit) {
  const DeviceMatrix a = on_device(random_matrix(DType::kFloat32, 4, 8, 1)),
                     c = on_device(random_matrix(DType::kFloat32, 4, 5, 1));
  try {
    run({.a = a, .b = a, .c = c.mut(), .transpose_b = true});
    FAIL() << "no error";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(), HasSubstr("[gemm] expected matching shapes, got a [4, 8], b [4, 8], c [4, 5]"));
  }
}

}  // namespace
}  // namespace ashlar::cuda
