#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "kernels/make_backend.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::test {
namespace {

// The CPU keeps the logits of a bf16 model in fp32, and says so to who does not ask.
TEST(LogitsDtype, AnotherThanTheBackendWantsIsNamed) {
  const std::unique_ptr<Backend> backend = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream = backend->make_stream();
  EXPECT_EQ(backend->logits_dtype(DType::kBFloat16), DType::kFloat32);
  const HostMatrix logits = random_matrix(DType::kBFloat16, 1, 4, 1);
  const Integers targets = {0};
  HostMatrix row(DType::kFloat32, 1, 1);
  try {
    backend->loss_row_stats({.logits = logits.view(),
                             .row_max = row.mut(),
                             .row_sum = row.mut(),
                             .target_logit = row.mut(),
                             .shape = {.targets = view_of(targets), .valid_cols = 4}},
                            *stream);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bf16"));
  }
}

}  // namespace
}  // namespace ashlar::test
