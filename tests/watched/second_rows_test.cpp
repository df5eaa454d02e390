// Rows enough that a block takes two: what it keeps in shared memory for the second one may not be what threads still
// read for the first.
#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

TEST(SecondRows, OfTheLossHaveFactorsOfTheirOwn) {
  constexpr int64_t kBlocks = 64 * 132;  // of loss_backward at most
  constexpr int64_t kRows = kBlocks + 2, kCols = 256;
  EveryBackend backends;
  HostMatrix logits(DType::kFloat32, kRows, kCols), max(DType::kFloat32, 1, kRows), sum = max;
  logits.fill(1);
  max.fill(1);
  sum.fill(kCols);
  const Integers targets(kRows, 3);
  const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = 0.5});
  backends.one().loss_backward({.logits = logits.view(),
                                .row_max = max.view(),
                                .row_sum = sum.view(),
                                .dlogits = logits.mut(),
                                .shape = {.targets = view_of(targets), .valid_cols = kCols},
                                .scalars = scalars.view()},
                               backends.stream());
  backends.finish();
  for (int64_t n = 0; n < kRows; ++n) {
    ASSERT_EQ(logits.at(n, 0), 0.5 / kCols) << n;
    ASSERT_EQ(logits.at(n, 3), -0.5 * (kCols - 1) / kCols) << n;
  }
}

// Rows are copied to shared memory while the gradients of the row before are written.
TEST(SecondRows, OfTheLossAreCopiedWhileGradientsAreWritten) {
  constexpr int64_t kBlocks = 2 * 132;  // of loss_stats_and_grad at most
  constexpr int64_t kRows = 2 * kBlocks + 2, kCols = 520;
  EveryBackend backends;
  HostMatrix logits(DType::kFloat32, kRows, kCols), max(DType::kFloat32, 1, kRows), sum = max, target = max;
  Integers targets(kRows);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t c = 0; c < kCols; ++c) logits.set(n, c, static_cast<double>(n % 7));
    targets[static_cast<size_t>(n)] = static_cast<int32_t>(n % 5) - 1;
  }
  const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = 0.5});
  backends.one().loss_stats_and_grad({.logits = logits.view(),
                                      .row_max = max.mut(),
                                      .row_sum = sum.mut(),
                                      .target_logit = target.mut(),
                                      .dlogits = logits.mut(),
                                      .shape = {.targets = view_of(targets), .valid_cols = kCols - 8},
                                      .scalars = scalars.view()},
                                     backends.stream());
  backends.finish();
  for (int64_t n = 0; n < kRows; ++n) {
    const int32_t t = targets[static_cast<size_t>(n)];
    ASSERT_EQ(max.at(n), static_cast<double>(n % 7)) << n;
    ASSERT_EQ(sum.at(n), kCols - 8) << n;
    for (int64_t c = 0; c < kCols; ++c) {
      const double wanted = t < 0 || c >= kCols - 8 ? 0 : c == t ? -0.5 * 511 / 512 : 0.5 / 512;
      ASSERT_EQ(logits.at(n, c), wanted) << n << ", " << c;
    }
  }
}

}  // namespace
}  // namespace ashlar::test
