#include <gtest/gtest.h>

#include <algorithm>

#include <limits>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr int64_t kSize = 70001;
/// A gap before the first, between, and after the last; sizes around pieces of work.
const std::vector<AdamWSegment> kSegments = {{.offset = 3, .size = 4093, .lr_multiplier = 1, .weight_decay = 0.1},
                                             {.offset = 4096, .size = 1, .lr_multiplier = 0.5, .weight_decay = 0},
                                             {.offset = 4100, .size = 60000, .lr_multiplier = 2, .weight_decay = 0.3},
                                             {.offset = 64100, .size = 5000, .lr_multiplier = 0, .weight_decay = 0.3}};

StepScalars scalars_at(int step) {
  return {.lr = 1e-2 / step, .beta1_correction = 1 - std::pow(0.9, step), .beta2_correction = 1 - std::pow(0.95, step)};
}

ClipState clip_at(int step) { return {.clip_scale = step % 3 == 0 ? 0.5 : 1.0, .skip = step % 7 == 0 ? 1 : 0}; }

struct State {
  HostMatrix master, m, v, weights;
};

/// The algorithm, one element after the other, in double.
void reference_step(State& s, const HostMatrix& grad, const StepScalars& k, const ClipState& clip) {
  if (clip.skip != 0) return;
  for (const AdamWSegment& segment : kSegments) {
    for (int64_t i = segment.offset; i < segment.offset + segment.size; ++i) {
      const double g = grad.at(i) * clip.clip_scale;
      const double m = 0.9 * s.m.at(i) + 0.1 * g;
      const double v = 0.95 * s.v.at(i) + 0.05 * g * g;
      const double lr = k.lr * segment.lr_multiplier;
      double w = s.master.at(i);
      w -= lr * segment.weight_decay * w;
      w -= lr * (m / k.beta1_correction) / (std::sqrt(v / k.beta2_correction) + 1e-8);
      s.m.set(i, m);
      s.v.set(i, v);
      s.master.set(i, w);
      s.weights.set(i, w);
    }
  }
}

State start_state(DType acc, DType weights) {
  State s{random_matrix(acc, 1, kSize, 1), HostMatrix(acc, 1, kSize), HostMatrix(acc, 1, kSize),
          HostMatrix(weights, 1, kSize)};
  s.m.fill(0);
  s.v.fill(0);
  s.weights.fill(7);
  return s;
}

class OptimizerTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

TEST_F(OptimizerTest, AdamWFollowsTheAlgorithmForTwentySteps) {
  struct Types {
    DType acc, weights;
    bool separate;
  };
  for (const Types t : {Types{DType::kFloat32, DType::kFloat32, false},
                        {DType::kFloat32, DType::kFloat32, true},
                        {DType::kFloat32, DType::kBFloat16, true},
                        {DType::kFloat64, DType::kFloat64, true}}) {
    SCOPED_TRACE(str_cat(name_of(t.acc), " weights ", name_of(t.weights), t.separate ? " separate" : ""));
    State expected = start_state(DType::kFloat64, DType::kFloat64);
    {
      const State same = start_state(t.acc, t.weights);  // the start as the kernel sees it, rounded
      for (int64_t i = 0; i < kSize; ++i) expected.master.set(i, same.master.at(i));
    }
    std::vector<HostMatrix> grads;
    for (int step = 1; step <= 20; ++step) {
      grads.push_back(random_matrix(t.acc, 1, kSize, static_cast<uint64_t>(100 + step)));
      reference_step(expected, grads.back(), scalars_at(step), clip_at(step));
    }
    backends_.each(
        [&](Backend& backend) {
          State s = start_state(t.acc, t.weights);
          for (int step = 1; step <= 20; ++step) {
            const DeviceStruct<StepScalars> scalars(scalars_at(step));
            const DeviceStruct<ClipState> clip(clip_at(step));
            backend.adamw({.grad = grads[static_cast<size_t>(step - 1)].view(),
                           .master = s.master.mut(),
                           .m = s.m.mut(),
                           .v = s.v.mut(),
                           .weights = t.separate ? s.weights.mut() : MutView{},
                           .segments = kSegments,
                           .scalars = scalars.view(),
                           .clip = clip.view()},
                          backends_.stream());
          }
          return Outputs{s.master, s.m, s.v, s.weights};
        },
        [&](const Outputs& out) {
          const double u = unit_roundoff(t.acc);
          for (int64_t i = 0; i < kSize; ++i) {
            // Each step rounds the weight a few times and moves it by at most a few learning rates.
            ASSERT_NEAR(out[0].at(i), expected.master.at(i), 200 * u * (std::abs(expected.master.at(i)) + 1)) << i;
            ASSERT_NEAR(out[1].at(i), expected.m.at(i), 100 * u) << i;
            ASSERT_NEAR(out[2].at(i), expected.v.at(i), 100 * u * (1 + expected.v.at(i))) << i;
            const bool touched = std::any_of(kSegments.begin(), kSegments.end(), [&](const AdamWSegment& g) {
              return i >= g.offset && i < g.offset + g.size;
            });
            ASSERT_EQ(out[3].at(i), t.separate && touched ? rounded(t.weights, out[0].at(i)) : 7) << i;
            if (!touched) {
              ASSERT_EQ(out[1].at(i), 0);
              ASSERT_EQ(out[0].at(i), expected.master.at(i));
            }
          }
        });
    if (HasFatalFailure()) return;
  }
}

TEST_F(OptimizerTest, SkipLeavesEverythingUntouchedEvenBesideNan) {
  State s = start_state(DType::kFloat32, DType::kBFloat16);
  const State before = s;
  const HostMatrix grad(DType::kFloat32, 1, kSize);  // NaN throughout
  const DeviceStruct<StepScalars> scalars({.lr = 1});
  const DeviceStruct<ClipState> clip({.skip = 1});
  backends_.one().adamw({.grad = grad.view(),
                         .master = s.master.mut(),
                         .m = s.m.mut(),
                         .v = s.v.mut(),
                         .weights = s.weights.mut(),
                         .segments = kSegments,
                         .scalars = scalars.view(),
                         .clip = clip.view()},
                        backends_.stream());
  backends_.finish();
  EXPECT_TRUE(s.master == before.master && s.m == before.m && s.v == before.v && s.weights == before.weights);
}

TEST_F(OptimizerTest, SegmentsOutOfOrderAreABug) {
  State s = start_state(DType::kFloat32, DType::kFloat32);
  const DeviceStruct<StepScalars> scalars;
  const DeviceStruct<ClipState> clip;
  const std::vector<AdamWSegment> bad = {{.offset = 10, .size = 10}, {.offset = 15, .size = 2}};
  EXPECT_THROW(backends_.one().adamw({.grad = s.m.view(),
                                      .master = s.master.mut(),
                                      .m = s.m.mut(),
                                      .v = s.v.mut(),
                                      .weights = {},
                                      .segments = bad,
                                      .scalars = scalars.view(),
                                      .clip = clip.view()},
                                     backends_.stream()),
               Bug);
}

TEST_F(OptimizerTest, SumSquaresIsExactPerChunkAndShowsNonFinite) {
  for (const DType dtype : kStorageDTypes) {
    for (const int64_t size : {1, 3, 31, 4095, 4096, 4097, 70001}) {
      HostMatrix x = random_matrix(dtype, 1, size, 1);
      if (size == 4097) x.set(4096, std::nan(""));
      if (size == 70001) {
        x.set(5000, std::numeric_limits<double>::infinity());
        if (dtype != DType::kFloat64) x.set(2, 1e30);  // its square is beyond fp32
      }
      const int64_t chunks = (size + 4095) / 4096;
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(DType::kFloat64, 1, chunks)};
            backend.sum_squares({.x = x.view(), .partials = out[0].mut()}, backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            for (int64_t i = 0; i < chunks; ++i) {
              long double sum = 0;
              for (int64_t k = i * 4096; k < std::min(size, (i + 1) * 4096); ++k)
                sum += static_cast<long double>(x.at(k)) * x.at(k);
              const auto expected = static_cast<double>(sum);
              if (std::isfinite(expected)) {
                ASSERT_NEAR(out[0].at(i), expected, expected * 4096 * 0x1p-53);
              } else {
                ASSERT_FALSE(std::isfinite(out[0].at(i)));
              }
            }
          });
    }
  }
}

}  // namespace
}  // namespace ashlar::test
