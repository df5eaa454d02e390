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

}  // namespace
}  // namespace ashlar::test
