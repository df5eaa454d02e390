#include "core/backend/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

/// A matrix in double beside its stored form; what is compared is always the stored values.
struct Stored {
  DType dtype;
  int64_t rows, cols;
  DeviceVector<double> bytes;  // aligned storage, reinterpreted

  Stored(DType type, int64_t r, int64_t c, uint64_t rng_stream) : dtype(type), rows(r), cols(c) {
    bytes.resize(static_cast<size_t>(r * c) + 1);
    for (int64_t i = 0; i < r * c; ++i) {
      set(i, 2.0 * Philox::uniform(Philox::block(11, rng_stream, static_cast<uint64_t>(i))[0]) - 1.0);
    }
  }
  void set(int64_t i, double value) {
    switch (dtype) {
      case DType::kFloat32: reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(value); break;
      case DType::kBFloat16: reinterpret_cast<BF16*>(bytes.data())[i] = BF16(static_cast<float>(value)); break;
      default: bytes[static_cast<size_t>(i)] = value; break;
    }
  }
  double at(int64_t r, int64_t c) const {
    const int64_t i = r * cols + c;
    switch (dtype) {
      case DType::kFloat32: return reinterpret_cast<const float*>(bytes.data())[i];
      case DType::kBFloat16: return static_cast<float>(reinterpret_cast<const BF16*>(bytes.data())[i]);
      default: return bytes[static_cast<size_t>(i)];
    }
  }
  MutView view() { return {bytes.data(), dtype, rows, cols, cols}; }
};

/// sum of `terms` products plus `start`, compared within the bound of a recursive sum and one store.
struct Sum {
  double value = 0;
  double magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
  double bound(DType storage, DType result, int64_t terms) const {
    return 1.01 * (unit_roundoff(accumulate_dtype(storage)) * static_cast<double>(terms + 4) * magnitude +
                   unit_roundoff(result) * std::abs(value)) +
           1e-300;
  }
};

class LinearOn : public ::testing::TestWithParam<std::tuple<BackendUnderTest, DType>> {
 protected:
  LinearOn()
      : backend_(std::get<0>(GetParam()).make()), stream_(backend_->make_stream()), storage_(std::get<1>(GetParam())) {}

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  DType storage_;
};

struct Size {
  int64_t n, k, m;
};
constexpr Size kSizes[] = {{1, 48, 97},  {29, 48, 97}, {29, 97, 48}, {64, 33, 130},
                           {3, 500, 65}, {130, 31, 1}, {300, 3, 270}};

TEST_P(LinearOn, ForwardIsXTimesWTransposedPlusBias) {
  for (const auto& [n, k, m] : kSizes) {
    for (const int bias_kind : {0, 1, 2}) {
      for (const bool wide : {false, true}) {
        Stored x(storage_, n, k, 1);
        Stored w(storage_, m, k, 2);
        Stored bias(bias_kind == 2 ? accumulate_dtype(storage_) : storage_, 1, m, 3);
        Stored y(wide ? accumulate_dtype(storage_) : storage_, n, m, 4);
        backend_->linear_forward(
            {.x = x.view(), .w = w.view(), .bias = bias_kind ? bias.view() : MutView(), .y = y.view()}, *stream_);
        stream_->synchronize();
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < m; ++j) {
            Sum sum;
            if (bias_kind) sum.add(bias.at(0, j));
            for (int64_t p = 0; p < k; ++p) sum.add(x.at(i, p) * w.at(j, p));
            ASSERT_NEAR(y.at(i, j), sum.value, sum.bound(storage_, y.dtype, k)) << n << " x " << k << " x " << m;
          }
        }
      }
    }
  }
}

TEST_P(LinearOn, BackwardInputIsDyTimesW) {
  for (const auto& [n, k, m] : kSizes) {
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
      Stored dy(storage_, n, m, 1);
      Stored w(storage_, m, k, 2);
      Stored dx(storage_, n, k, 3);
      const Stored before = dx;
      backend_->linear_backward_input({.dy = dy.view(), .w = w.view(), .dx = dx.view(), .mode = mode}, *stream_);
      stream_->synchronize();
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < k; ++j) {
          Sum sum;
          if (mode == GradMode::kAccumulate) sum.add(before.at(i, j));
          for (int64_t p = 0; p < m; ++p) sum.add(dy.at(i, p) * w.at(p, j));
          ASSERT_NEAR(dx.at(i, j), sum.value, sum.bound(storage_, storage_, m)) << n << " x " << k << " x " << m;
        }
      }
    }
  }
}

TEST_P(LinearOn, BackwardWeightIsDyTransposedTimesXAndColumnSums) {
  const DType sums = accumulate_dtype(storage_);
  for (const auto& [n, k, m] : kSizes) {
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
      Stored dy(storage_, n, m, 1);
      Stored x(storage_, n, k, 2);
      Stored dw(sums, m, k, 3);
      Stored dbias(sums, 1, m, 4);
      const Stored dw_before = dw;
      const Stored dbias_before = dbias;
      backend_->linear_backward_weight(
          {.dy = dy.view(), .x = x.view(), .dw = dw.view(), .dbias = dbias.view(), .mode = mode}, *stream_);
      stream_->synchronize();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < k; ++j) {
          Sum sum;
          if (mode == GradMode::kAccumulate) sum.add(dw_before.at(i, j));
          for (int64_t p = 0; p < n; ++p) sum.add(dy.at(p, i) * x.at(p, j));
          ASSERT_NEAR(dw.at(i, j), sum.value, sum.bound(storage_, sums, n)) << n << " x " << k << " x " << m;
        }
        Sum sum;
        if (mode == GradMode::kAccumulate) sum.add(dbias_before.at(0, i));
        for (int64_t p = 0; p < n; ++p) sum.add(dy.at(p, i));
        ASSERT_NEAR(dbias.at(0, i), sum.value, sum.bound(storage_, sums, n)) << n << " x " << k << " x " << m;
      }
    }
  }
}

TEST_P(LinearOn, ModesAndAbsentViewsAreObeyed) {
  const DType sums = accumulate_dtype(storage_);
  Stored dy(storage_, 5, 7, 1);
  Stored x(storage_, 5, 6, 2);
  Stored w(storage_, 7, 6, 3);
  Stored dw(sums, 7, 6, 4);
  Stored dbias(sums, 1, 7, 5);
  Stored dx(storage_, 5, 6, 6);
  const Stored dw_before = dw;
  const Stored dbias_before = dbias;
  const Stored dx_before = dx;
  backend_->linear_backward_input({.dy = dy.view(), .w = w.view(), .dx = dx.view(), .mode = GradMode::kSkip}, *stream_);
  stream_->synchronize();
  EXPECT_EQ(dx.bytes, dx_before.bytes);
  backend_->linear_backward_weight(
      {.dy = dy.view(), .x = x.view(), .dw = dw.view(), .dbias = dbias.view(), .mode = GradMode::kSkip}, *stream_);
  stream_->synchronize();
  EXPECT_EQ(dw.bytes, dw_before.bytes);
  EXPECT_EQ(dbias.bytes, dbias_before.bytes);
  backend_->linear_backward_weight({.dy = dy.view(), .x = x.view(), .dw = {}, .dbias = dbias.view()}, *stream_);
  stream_->synchronize();
  EXPECT_EQ(dw.bytes, dw_before.bytes);
  EXPECT_NE(dbias.bytes, dbias_before.bytes);
}

TEST_P(LinearOn, SumsOfNoRowsAreZero) {
  const DType sums = accumulate_dtype(storage_);
  for (const GradMode mode : {GradMode::kAccumulate, GradMode::kOverwrite}) {
    Stored dy(storage_, 0, 7, 1), x(storage_, 0, 6, 2), dw(sums, 7, 6, 3), dbias(sums, 1, 7, 4);
    const Stored dw_before = dw, dbias_before = dbias;
    backend_->linear_backward_weight(
        {.dy = dy.view(), .x = x.view(), .dw = dw.view(), .dbias = dbias.view(), .mode = mode}, *stream_);
    stream_->synchronize();
    const bool kept = mode == GradMode::kAccumulate;
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(dbias.at(0, i), kept ? dbias_before.at(0, i) : 0);
      for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(dw.at(i, j), kept ? dw_before.at(i, j) : 0);
    }
  }
}

/// A row's result does not depend on how many rows are computed with it: generation with a KV cache sees the numbers
/// of the whole sequence.
TEST_P(LinearOn, OneRowGivesTheBitsOfManyRows) {
  Stored x(storage_, 40, 1000, 1);
  Stored w(storage_, 97, 1000, 2);
  Stored all(storage_, 40, 97, 3);
  backend_->linear_forward({.x = x.view(), .w = w.view(), .bias = {}, .y = all.view()}, *stream_);
  stream_->synchronize();
  for (const int64_t rows : {1, 2, 13}) {
    Stored some(storage_, rows, 97, 4);
    ConstView head = x.view();
    head.rows = rows;
    backend_->linear_forward({.x = head, .w = w.view(), .bias = {}, .y = some.view()}, *stream_);
    stream_->synchronize();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < 97; ++j) ASSERT_EQ(some.at(i, j), all.at(i, j)) << rows << " rows, " << i << ", " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LinearOn,
                         ::testing::Combine(::testing::ValuesIn(backends_under_test()),
                                            ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64)),
                         [](const auto& at) {
                           return str_cat(std::get<0>(at.param).name, "_", name_of(std::get<1>(at.param)));
                         });

}  // namespace
}  // namespace ashlar::test
