#include <gtest/gtest.h>

#include "tests/kernels/cases/router_reference.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

class BalanceUpdateTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  /// {selection_bias, previous_counts} after an update.
  Outputs update(Backend& backend, const HostMatrix& counts, const HostMatrix& bias, double rate, bool skip = false) {
    const DeviceStruct<ClipState> clip({.clip_scale = 0.5, .skip = skip ? 1 : 0});
    Outputs out = {bias, HostMatrix(bias.dtype(), 1, counts.cols(), 1)};
    backend.balance_update({.counts = counts.view(),
                            .selection_bias = out[0].mut(),
                            .previous_counts = out[1].mut(),
                            .clip = clip.view(),
                            .rate = rate},
                           backends_.stream());
    backends_.finish();
    return out;
  }
};

TEST_F(BalanceUpdateTest, MovesByTheSignOfTheDistanceToTheMean) {
  struct Case {
    std::vector<double> counts, signs;
  };
  const std::vector<Case> cases = {
      {{4, 2, 0, 2}, {-1, 0, 1, 0}},    // a count that equals the mean moves nothing
      {{1, 1, 2}, {1, 1, -1}},          // a mean that is not a whole number
      {{5}, {0}},                       //
      {{0, 0, 0}, {0, 0, 0}},           //
      {{0x1p40, 0x1p40 + 1}, {1, -1}},  // beyond the whole numbers of fp32
      {{0x1p33 + 1, 0x1p33 - 1, 0x1p33}, {-1, 1, 0}},
  };
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(str_cat(name_of(acc), " ", c.counts[0], " of ", c.counts.size()));
      const HostMatrix counts = router_vector(DType::kFloat64, c.counts);
      HostMatrix bias(acc, 1, counts.cols());
      for (int64_t e = 0; e < counts.cols(); ++e) bias.set(e, 0.25 * static_cast<double>(e) - 1);
      backends_.each([&](Backend& backend) { return update(backend, counts, bias, 0.125); },
                     [&](const Outputs& out) {
                       for (int64_t e = 0; e < counts.cols(); ++e) {
                         EXPECT_EQ(out[0].at(e), bias.at(e) + 0.125 * c.signs[static_cast<size_t>(e)]) << e;
                         EXPECT_EQ(out[1].at(e), acc == DType::kFloat64
                                                     ? counts.at(e)
                                                     : static_cast<double>(static_cast<float>(counts.at(e))))
                             << e;
                       }
                     });
    }
  }
}

TEST_F(BalanceUpdateTest, OfManyExperts) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t E : {31, 64, 257, 4096}) {
      SCOPED_TRACE(str_cat(name_of(acc), " ", E));
      HostMatrix counts(DType::kFloat64, 1, E), bias = random_matrix(acc, 1, E, 3);
      double total = 0;
      for (int64_t e = 0; e < E; ++e) {
        counts.set(e, static_cast<double>(e * e % 11));
        total += counts.at(e);
      }
      const double mean = total / static_cast<double>(E);
      // One rounding of the rate, one of the sum.
      const auto moved = [&](double by, double from) {
        return acc == DType::kFloat64 ? from + by
                                      : static_cast<double>(static_cast<float>(from) + static_cast<float>(by));
      };
      backends_.each([&](Backend& backend) { return update(backend, counts, bias, 1e-3); },
                     [&](const Outputs& out) {
                       for (int64_t e = 0; e < E; ++e) {
                         const double by = counts.at(e) < mean ? 1e-3 : counts.at(e) > mean ? -1e-3 : 0;
                         ASSERT_EQ(out[0].at(e), moved(by, bias.at(e))) << e;
                         ASSERT_EQ(out[1].at(e), counts.at(e)) << e;
                       }
                     });
    }
  }
}

TEST_F(BalanceUpdateTest, ASkippedStepChangesNothing) {
  const HostMatrix counts = router_vector(DType::kFloat64, {1, 2, 5});
  const HostMatrix bias = random_matrix(DType::kFloat32, 1, 3, 1), untouched(DType::kFloat32, 1, 3, 1);
  backends_.each([&](Backend& backend) { return update(backend, counts, bias, 0.5, true); },
                 [&](const Outputs& out) { EXPECT_TRUE(out[0] == bias && out[1] == untouched); });
}

TEST_F(BalanceUpdateTest, EachBufferMayBeAbsent) {
  const HostMatrix counts = router_vector(DType::kFloat64, {1, 2, 5});
  const DeviceStruct<ClipState> clip;
  for (const bool with_bias : {false, true}) {
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {router_vector(DType::kFloat32, {0, 0, 0}), router_vector(DType::kFloat32, {9, 9, 9})};
          backend.balance_update({.counts = counts.view(),
                                  .selection_bias = with_bias ? out[0].mut() : MutView{},
                                  .previous_counts = with_bias ? MutView{} : out[1].mut(),
                                  .clip = clip.view(),
                                  .rate = 0.5},
                                 backends_.stream());
          backends_.finish();
          return out;
        },
        [&](const Outputs& out) {
          EXPECT_TRUE(out[0] == router_vector(DType::kFloat32, with_bias ? std::vector<double>{0.5, 0.5, -0.5}
                                                                         : std::vector<double>{0, 0, 0}));
          EXPECT_TRUE(out[1] == router_vector(DType::kFloat32,
                                              with_bias ? std::vector<double>{9, 9, 9} : std::vector<double>{1, 2, 5}));
        });
  }
}

TEST_F(BalanceUpdateTest, ViolationsAreBugs) {
  const HostMatrix counts = router_vector(DType::kFloat64, {1, 2, 5}), fp32 = router_vector(DType::kFloat32, {1, 2, 5});
  HostMatrix bias = fp32, previous = fp32, two(DType::kFloat32, 1, 2), bf16(DType::kBFloat16, 1, 3), fp64 = counts;
  const DeviceStruct<ClipState> clip;
  const DeviceStruct<StepScalars> other;
  const auto call = [&](const auto& change) {
    BalanceUpdate args{.counts = counts.view(),
                       .selection_bias = bias.mut(),
                       .previous_counts = previous.mut(),
                       .clip = clip.view(),
                       .rate = 1};
    change(args);
    backends_.one().balance_update(args, backends_.stream());
    backends_.finish();
  };
  using Args = BalanceUpdate;
  EXPECT_NO_THROW(call([](Args&) {}));
  EXPECT_THROW(call([&](Args& a) { a.counts = fp32.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.selection_bias = two.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.selection_bias = bf16.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.previous_counts = fp64.mut(); }), Bug) << "two dtypes";
  EXPECT_THROW(call([&](Args& a) { a.previous_counts = two.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.clip = other.view(); }), Bug);
}

}  // namespace
}  // namespace ashlar::test
