#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr int64_t kSize = 73701;    // of the flat buffers
constexpr int64_t kPacked = 73729;  // of the packed state: 9 parts of the CUDA kernel's, and one element
/// A gap before the first and after the last of the flat buffers, and between them in both places; sizes around the
/// parts that threads take, begins and ends inside of vectors.
const std::array<UpdateSegment, 4> kSegments = {
    {{.flat_begin = 3, .packed_begin = 0, .size = 4093, .lr_multiplier = 1, .weight_decay = 0.1},
     {.flat_begin = 4096, .packed_begin = 4093, .size = 1, .lr_multiplier = 0.5, .weight_decay = 0},
     {.flat_begin = 4101, .packed_begin = 4161, .size = 59997, .lr_multiplier = 2, .weight_decay = 0.3},
     {.flat_begin = 64101, .packed_begin = 64193, .size = 9536, .lr_multiplier = 0, .weight_decay = 0.3}}};

StepScalars scalars_at(int step) {
  return {.lr = 1e-2 / step, .beta1_correction = 1 - std::pow(0.9, step), .beta2_correction = 1 - std::pow(0.95, step)};
}

ClipState clip_at(int step) { return {.clip_scale = step % 3 == 0 ? 0.5 : 1.0, .skip = step % 7 == 0 ? 1 : 0}; }

struct State {
  bool separate;  ///< master is packed, and there are weights beside it; otherwise master is the weights
  HostMatrix master, m, v, weights;
};

/// The algorithm, one element after the other, in double.
void reference_step(State& s, const HostMatrix& grad, const StepScalars& k, const ClipState& clip) {
  if (clip.skip != 0) return;
  for (const UpdateSegment& segment : kSegments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      const int64_t flat = segment.flat_begin + i, packed = segment.packed_begin + i;
      const int64_t at = s.separate ? packed : flat;
      const double g = grad.at(flat) * clip.clip_scale;
      const double m = 0.9 * s.m.at(packed) + 0.1 * g;
      const double v = 0.95 * s.v.at(packed) + 0.05 * g * g;
      const double lr = k.lr * segment.lr_multiplier;
      double w = s.master.at(at);
      w -= lr * segment.weight_decay * w;
      w -= lr * (m / k.beta1_correction) / (std::sqrt(v / k.beta2_correction) + 1e-8);
      s.m.set(packed, m);
      s.v.set(packed, v);
      s.master.set(at, w);
      if (s.separate) s.weights.set(flat, w);
    }
  }
}

State start_state(DType acc, DType weights, bool separate) {
  State s{separate, random_matrix(acc, 1, separate ? kPacked : kSize, 1), HostMatrix(acc, 1, kPacked),
          HostMatrix(acc, 1, kPacked), HostMatrix(weights, 1, kSize)};
  s.m.fill(0);
  s.v.fill(0);
  s.weights.fill(7);
  return s;
}

struct Types {
  DType acc, weights;
  bool separate;
  std::string text() const { return str_cat(name_of(acc), " weights ", name_of(weights), separate ? " separate" : ""); }
};
constexpr Types kTypes[] = {{DType::kFloat32, DType::kFloat32, false},
                            {DType::kFloat32, DType::kFloat32, true},
                            {DType::kFloat32, DType::kBFloat16, true},
                            {DType::kFloat64, DType::kFloat64, true}};

class OptimizerTest : public ::testing::Test {
 protected:
  /// What every rule is given.
  Update update_of(State& s, const HostMatrix& grad, const DeviceStruct<StepScalars>& scalars,
                   const DeviceStruct<ClipState>& clip) const {
    return {.grad = grad.view(),
            .master = s.master.mut(),
            .weights = s.separate ? s.weights.mut() : MutView{},
            .segments = segments_.view(),
            .scalars = scalars.view(),
            .clip = clip.view()};
  }

  EveryBackend backends_;
  const DeviceStruct<std::array<UpdateSegment, 4>> segments_{kSegments};
};

TEST_F(OptimizerTest, AdamWFollowsTheAlgorithmForTwentySteps) {
  for (const Types& t : kTypes) {
    SCOPED_TRACE(t.text());
    State expected = start_state(DType::kFloat64, DType::kFloat64, t.separate);
    {
      const State same = start_state(t.acc, t.weights, t.separate);  // the start as the kernel sees it, rounded
      for (int64_t i = 0; i < same.master.view().size(); ++i) expected.master.set(i, same.master.at(i));
    }
    std::vector<HostMatrix> grads;
    for (int step = 1; step <= 20; ++step) {
      grads.push_back(random_matrix(t.acc, 1, kSize, static_cast<uint64_t>(100 + step)));
      reference_step(expected, grads.back(), scalars_at(step), clip_at(step));
    }
    backends_.each(
        [&](Backend& backend) {
          State s = start_state(t.acc, t.weights, t.separate);
          for (int step = 1; step <= 20; ++step) {
            const DeviceStruct<StepScalars> scalars(scalars_at(step));
            const DeviceStruct<ClipState> clip(clip_at(step));
            backend.adamw({.update = update_of(s, grads[static_cast<size_t>(step - 1)], scalars, clip),
                           .m = s.m.mut(),
                           .v = s.v.mut(),
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8},
                          backends_.stream());
            backends_.finish();
          }
          return Outputs{s.master, s.m, s.v, s.weights};
        },
        [&](const Outputs& out) {
          const double u = unit_roundoff(t.acc);
          for (int64_t i = 0; i < kPacked; ++i) {
            // Each step rounds the weight a few times and moves it by at most a few learning rates.
            ASSERT_NEAR(out[1].at(i), expected.m.at(i), 100 * u) << i;
            ASSERT_NEAR(out[2].at(i), expected.v.at(i), 100 * u * (1 + expected.v.at(i))) << i;
          }
          for (int64_t i = 0; i < expected.master.view().size(); ++i)
            ASSERT_NEAR(out[0].at(i), expected.master.at(i), 200 * u * (std::abs(expected.master.at(i)) + 1)) << i;
          // What lies in no segment is as it was.
          std::vector<int64_t> packed_of(kSize, -1);
          for (const UpdateSegment& g : kSegments)
            for (int64_t i = 0; i < g.size; ++i) packed_of[g.flat_begin + i] = g.packed_begin + i;
          for (int64_t i = 0; i < kSize; ++i) {
            const int64_t at = packed_of[static_cast<size_t>(i)];
            ASSERT_EQ(out[3].at(i), t.separate && at >= 0 ? rounded(t.weights, out[0].at(at)) : 7) << i;
            if (!t.separate && at < 0) {
              ASSERT_EQ(out[0].at(i), expected.master.at(i)) << i;
            }
          }
        });
    if (HasFatalFailure()) return;
  }
}

/// Lion, one element after the other, in double. `margin`: how near to zero the mean came whose sign decides, where it
/// was not zero itself.
void reference_lion_step(State& s, const HostMatrix& grad, const StepScalars& k, const ClipState& clip,
                         double& margin) {
  if (clip.skip != 0) return;
  for (const UpdateSegment& segment : kSegments) {
    for (int64_t i = 0; i < segment.size; ++i) {
      const int64_t flat = segment.flat_begin + i, packed = segment.packed_begin + i;
      const int64_t at = s.separate ? packed : flat;
      const double g = grad.at(flat) * clip.clip_scale, m = s.m.at(packed);
      const double direction = 0.9 * m + (1 - 0.9) * g, lr = k.lr * segment.lr_multiplier;
      if (direction != 0) margin = std::min(margin, std::abs(direction));
      double w = s.master.at(at);
      w -= lr * segment.weight_decay * w;
      w -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
      s.m.set(packed, 0.99 * m + (1 - 0.99) * g);
      s.master.set(at, w);
      if (s.separate) s.weights.set(flat, w);
    }
  }
}

/// Gradients without an element so small that rounding could turn the sign of a mean: k/32 for whole k, never near a
/// tie of the means of three steps; every seventh is zero, always the same ones.
HostMatrix lion_gradient(DType dtype, int step) {
  HostMatrix grad = random_matrix(dtype, 1, kSize, static_cast<uint64_t>(200 + step));
  for (int64_t i = 0; i < kSize; ++i) {
    const double size = 1 + std::floor(std::abs(grad.at(i)) * 8) / 32;
    grad.set(i, i % 7 == 0 ? 0 : grad.at(i) < 0 ? -size : size);
  }
  return grad;
}

TEST_F(OptimizerTest, LionFollowsTheAlgorithm) {
  constexpr int kSteps = 8;
  for (const Types& t : kTypes) {
    SCOPED_TRACE(t.text());
    const State start = start_state(t.acc, t.weights, t.separate);
    State expected = start_state(DType::kFloat64, DType::kFloat64, t.separate);
    for (int64_t i = 0; i < start.master.view().size(); ++i) expected.master.set(i, start.master.at(i));
    double margin = 1;
    std::vector<HostMatrix> grads;
    for (int step = 1; step <= kSteps; ++step) {
      grads.push_back(lion_gradient(t.acc, step));
      reference_lion_step(expected, grads.back(), scalars_at(step), clip_at(step), margin);
    }
    ASSERT_GT(margin, 32 * 0x1p-24) << "a sign that rounding decides proves nothing";
    backends_.each(
        [&](Backend& backend) {
          State s = start;
          for (int step = 1; step <= kSteps; ++step) {
            const DeviceStruct<StepScalars> scalars(scalars_at(step));
            const DeviceStruct<ClipState> clip(clip_at(step));
            backend.lion({.update = update_of(s, grads[static_cast<size_t>(step - 1)], scalars, clip),
                          .m = s.m.mut(),
                          .beta1 = 0.9,
                          .beta2 = 0.99},
                         backends_.stream());
            backends_.finish();
          }
          return Outputs{s.master, s.m, s.weights};
        },
        [&](const Outputs& out) {
          const double u = unit_roundoff(t.acc);
          for (int64_t i = 0; i < kPacked; ++i) ASSERT_NEAR(out[1].at(i), expected.m.at(i), 50 * u) << i;
          for (int64_t i = 0; i < expected.master.view().size(); ++i)
            ASSERT_NEAR(out[0].at(i), expected.master.at(i), 50 * u * (std::abs(expected.master.at(i)) + 1)) << i;
          // A gradient that was always zero: sign(0) = 0, so that decay alone moves the weight.
          const UpdateSegment& segment = kSegments[2];
          const int64_t flat = 4102, packed = segment.packed_begin + flat - segment.flat_begin;
          ASSERT_EQ(flat % 7, 0);
          ASSERT_EQ(out[1].at(packed), 0);
          double decayed = start.master.at(t.separate ? packed : flat);
          for (int step = 1; step <= kSteps; ++step)
            if (clip_at(step).skip == 0)
              decayed *= 1 - scalars_at(step).lr * segment.lr_multiplier * segment.weight_decay;
          ASSERT_NEAR(out[0].at(t.separate ? packed : flat), decayed, 50 * u);
          // What lies in no segment is as it was.
          for (const int64_t outside : {int64_t{0}, int64_t{2}, int64_t{4097}, int64_t{64101 + 9536}, kSize - 1})
            ASSERT_EQ(t.separate ? out[2].at(outside) : out[0].at(outside), t.separate ? 7 : start.master.at(outside))
                << outside;
          for (int64_t i = 0; i < 4093 && t.separate; ++i)
            ASSERT_EQ(out[2].at(3 + i), rounded(t.weights, out[0].at(i))) << i;
        });
    if (HasFatalFailure()) return;
  }
}

TEST_F(OptimizerTest, SkipLeavesEverythingUntouchedEvenBesideNan) {
  State s = start_state(DType::kFloat32, DType::kBFloat16, true);
  const State before = s;
  const HostMatrix grad(DType::kFloat32, 1, kSize);  // NaN throughout
  const DeviceStruct<StepScalars> scalars({.lr = 1});
  const DeviceStruct<ClipState> clip({.skip = 1});
  backends_.one().adamw({.update = update_of(s, grad, scalars, clip),
                         .m = s.m.mut(),
                         .v = s.v.mut(),
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8},
                        backends_.stream());
  backends_.one().lion({.update = update_of(s, grad, scalars, clip), .m = s.m.mut(), .beta1 = 0.9, .beta2 = 0.99},
                       backends_.stream());
  backends_.finish();
  EXPECT_TRUE(s.master == before.master && s.m == before.m && s.v == before.v && s.weights == before.weights);
}

TEST_F(OptimizerTest, SumSquaresFollowsTheChunksOfTheTensorAndShowsNonFinite) {
  // Slot 0 in two ranges, the second from the middle of its tensor; slot 1 empty; slots 2 and 3 around a chunk's size.
  std::array<SquaresSegment, 4> segments = {{{.begin = 5, .size = 9000, .first = 0, .slot = 0},
                                             {.begin = 9100, .size = 5000, .first = 6000, .slot = 0},
                                             {.begin = 15000, .size = 4096, .first = 4095, .slot = 2},
                                             {.begin = 20000, .size = 1, .first = 8191, .slot = 3}}};
  int64_t chunks = 0;
  for (SquaresSegment& segment : segments) {
    segment.first_chunk = chunks;
    chunks += segment.num_chunks();
  }
  EXPECT_EQ(chunks, 3 + 2 + 2 + 1);
  const DeviceStruct<std::array<SquaresSegment, 4>> table(segments);
  for (const DType dtype : kStorageDTypes) {
    for (const int64_t bad : {-1, 8000, 15000 + 4095, 20000, 20001}) {
      HostMatrix x = random_matrix(dtype, 1, 21000, 1);
      if (bad >= 0) x.set(bad, bad % 2 == 0 ? std::nan("") : std::numeric_limits<double>::infinity());
      if (dtype != DType::kFloat64) x.set(15001, 1e30);  // its square is beyond fp32
      std::vector<double> expected(5, 0.0);
      for (const SquaresSegment& segment : segments) {
        long double sum = 0;
        for (int64_t i = segment.begin; i < segment.begin + segment.size; ++i)
          sum += static_cast<long double>(x.at(i)) * x.at(i);
        expected[static_cast<size_t>(segment.slot)] += static_cast<double>(sum);
      }
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(DType::kFloat64, 1, 5), HostMatrix(DType::kFloat64, 1, chunks)};
            backend.sum_squares(
                {.x = x.view(), .segments = table.view(), .partials = out[1].mut(), .sums = out[0].mut()},
                backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            for (int64_t slot = 0; slot < 5; ++slot) {
              const double want = expected[static_cast<size_t>(slot)];
              if (std::isfinite(want)) {
                ASSERT_NEAR(out[0].at(slot), want, want * 9000 * 0x1p-53) << slot;
              } else {
                ASSERT_FALSE(std::isfinite(out[0].at(slot))) << slot;
              }
            }
          });
    }
  }
}

// A chunk is the tensor's, not the range's: cut anywhere, the chunks that the cut does not touch have the same bits.
TEST_F(OptimizerTest, ChunksStayWhereTheTensorHasThem) {
  constexpr int64_t kChunks = 4, kElements = kChunks * SumSquares::kChunk, kCut = 5000;
  const HostMatrix x = random_matrix(DType::kFloat32, 1, kElements, 3);
  const auto partials_of = [&](SquaresSegment first, SquaresSegment second) {
    second.first_chunk = first.num_chunks();
    const int64_t chunks = first.num_chunks() + second.num_chunks();
    const DeviceStruct<std::array<SquaresSegment, 2>> table({first, second});
    HostMatrix partials(DType::kFloat64, 1, chunks), sums(DType::kFloat64, 1, 2);
    backends_.one().sum_squares(
        {.x = x.view(), .segments = table.view(), .partials = partials.mut(), .sums = sums.mut()}, backends_.stream());
    backends_.finish();
    return partials;
  };
  const HostMatrix whole = partials_of({.size = kElements}, {.slot = 1});
  const HostMatrix cut =
      partials_of({.size = kCut}, {.begin = kCut, .size = kElements - kCut, .first = kCut, .slot = 1});
  EXPECT_EQ(cut.at(0), whole.at(0));
  EXPECT_NEAR(cut.at(1) + cut.at(2), whole.at(1), 1e-12 * whole.at(1));
  EXPECT_EQ(cut.at(3), whole.at(2));
  EXPECT_EQ(cut.at(4), whole.at(3));
}

// More chunks than a warp has lanes, and no number behind the last.
TEST_F(OptimizerTest, ManyChunksAreAddedInOrder) {
  constexpr int64_t kChunks = 33;
  const HostMatrix x = random_matrix(DType::kFloat32, 1, kChunks * SumSquares::kChunk, 4);
  const DeviceStruct<SquaresSegment> table({.size = x.view().size()});
  HostMatrix partials(DType::kFloat64, 1, kChunks), sums(DType::kFloat64, 1, 1);
  backends_.one().sum_squares({.x = x.view(), .segments = table.view(), .partials = partials.mut(), .sums = sums.mut()},
                              backends_.stream());
  backends_.finish();
  double sum = 0;
  for (int64_t i = 0; i < kChunks; ++i) sum += partials.at(i);
  EXPECT_EQ(sums.at(0), sum);
  double squares = 0;
  for (int64_t i = 0; i < x.view().size(); ++i) squares += x.at(i) * x.at(i);
  EXPECT_NEAR(sum, squares, 1e-10 * squares);
}

TEST_F(OptimizerTest, ClippingFollowsTheNormAndSkipsForGood) {
  const double kInf = std::numeric_limits<double>::infinity();
  HostMatrix squares(DType::kFloat64, 1, 3), losses(DType::kFloat64, 1, 2), kept(DType::kFloat64, 1, 3);
  DeviceStruct<ClipState> state;
  const auto run = [&](std::vector<double> values, std::vector<double> others, double max_norm) {
    for (int64_t i = 0; i < 3; ++i) squares.set(i, values[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < 2; ++i) losses.set(i, others[static_cast<size_t>(i)]);
    backends_.one().clip_gradients({.squares = squares.view(),
                                    .also_finite = losses.view(),
                                    .state = state.mut(),
                                    .kept = kept.mut(),
                                    .max_norm = max_norm},
                                   backends_.stream());
    backends_.finish();
  };
  run({9, 0, 16}, {2, 0}, 10);
  EXPECT_EQ(state->norm, 5);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(kept.at(i), squares.at(i));
  EXPECT_EQ(state->clip_scale, 1);
  run({9, 16, 0}, {2, 0}, 2);
  EXPECT_EQ(state->clip_scale, 2.0 / 5);
  run({9, 16, 0}, {2, 0}, 0);
  EXPECT_EQ(state->clip_scale, 1) << "0 is off";
  EXPECT_EQ(state->skip, 0);
  for (const double loss : {kInf, std::nan("")}) {
    *state = {};
    run({1, 1, 1}, {0, loss}, 1);
    EXPECT_EQ(state->skip, 1) << "a loss of " << loss;
  }
  *state = {};
  run({1, std::nan(""), 4}, {2, 0}, 1);
  EXPECT_EQ(state->skip, 1);
  EXPECT_TRUE(std::isnan(state->norm));
  run({1, 4, 4}, {2, 0}, 1);
  EXPECT_EQ(state->skip, 1) << "a later step undoes no skip";
  EXPECT_TRUE(std::isnan(state->norm) && std::isnan(kept.at(1))) << "what was found first is still known";
}

}  // namespace
}  // namespace ashlar::test
