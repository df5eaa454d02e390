// Optimizer state in bf16: each stored value is one of the two neighbours of the exact one, and the draw says which.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr int64_t kFlat = 10093, kOwned = 10101;
constexpr uint64_t kSeed = 0x123456789abcULL;
constexpr uint64_t kFirstStep = 70;
/// Ranges in which vectors have a Philox block of their own, and others: a range that begins inside a block; columns
/// 2 to 8 of 20, begun inside a row; columns 64 to 127 of 192; indices beyond 2^34, so that blocks are beyond 2^32.
constexpr std::array<UpdateSegment, 4> kRanges = {{{.flat_begin = 4,
                                                    .packed_begin = 0,
                                                    .size = 1001,
                                                    .weight_decay = 0.1,
                                                    .first = 5,
                                                    .global_begin = 0,
                                                    .cols = 100,
                                                    .rng_stream = 11},
                                                   {.flat_begin = 1005,
                                                    .packed_begin = 1001,
                                                    .size = 500,
                                                    .lr_multiplier = 0.5,
                                                    .first = 3,
                                                    .global_begin = 2,
                                                    .cols = 7,
                                                    .row_gap = 13,
                                                    .rng_stream = 12},
                                                   {.flat_begin = 1508,
                                                    .packed_begin = 1508,
                                                    .size = 3999,
                                                    .first = 64,
                                                    .global_begin = 192 + 64,
                                                    .cols = 64,
                                                    .row_gap = 128,
                                                    .rng_stream = 13},
                                                   {.flat_begin = 5512,
                                                    .packed_begin = 5520,
                                                    .size = 4577,
                                                    .weight_decay = 0.3,
                                                    .global_begin = (int64_t{1} << 35) + 8,
                                                    .cols = 1000,
                                                    .rng_stream = 14}}};

/// The index in the global tensor, by row and column.
uint64_t place_of(const UpdateSegment& s, int64_t i) {
  const int64_t row = (s.first + i) / s.cols, col = (s.first + i) % s.cols;
  return static_cast<uint64_t>(s.global_begin + row * (s.cols + s.row_gap) + col);
}

/// The 16 bits that decide about an element of a state tensor, 0 or 1.
uint32_t draw_of(const UpdateSegment& s, int64_t i, uint64_t step, int state) {
  const uint64_t e = place_of(s, i);
  const Philox::Counter words = Philox::apply(
      {static_cast<uint32_t>(e >> 2), static_cast<uint32_t>(e >> 34), s.rng_stream, static_cast<uint32_t>(step)},
      {static_cast<uint32_t>(kSeed), static_cast<uint32_t>(kSeed >> 32)});
  const uint32_t word = words[e & 3];
  return state == 0 ? word % 65536 : word / 65536;
}

/// Rounds to 8 significant bits, away from zero if the discarded share of a unit and the draw make a whole.
double rounded_by(double x, uint32_t draw) {
  if (x == 0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  const double below = std::floor(std::abs(x) / unit), rest = std::abs(x) / unit - below;
  return std::copysign((below + (rest + draw / 65536.0 >= 1 ? 1 : 0)) * unit, x);
}

/// Expects what rounding by the draw makes of a value within `off` of x.
void expect_rounded(double got, double x, double off, uint32_t draw, const std::string& what) {
  const double low = rounded_by(x - off, draw), high = rounded_by(x + off, draw);
  ASSERT_TRUE(low <= got && got <= high) << what << ": " << got << " from " << x << " by the draw " << draw;
}

struct NarrowCase {
  DType weights;
  bool separate;
};
constexpr NarrowCase kCases[] = {{DType::kFloat32, false}, {DType::kFloat32, true}, {DType::kBFloat16, true}};

struct Buffers {
  explicit Buffers(const NarrowCase& c)
      : separate(c.separate),
        master(random_matrix(DType::kFloat32, 1, c.separate ? kOwned : kFlat, 1)),
        m(DType::kBFloat16, 1, kOwned),
        v(DType::kBFloat16, 1, kOwned),
        weights(c.weights, 1, kFlat) {
    m.fill(0);
    v.fill(0);
    weights.fill(7);
  }
  bool separate;
  HostMatrix master, m, v, weights;
};

class NarrowStateTest : public ::testing::Test {
 protected:
  /// One step of AdamW or, without a second beta, Lion.
  void step(Backend& backend, Buffers& b, const HostMatrix& grad, StepScalars k, const ClipState& at,
            const std::vector<double>& betas) {
    const DeviceStruct<StepScalars> scalars(k);
    const DeviceStruct<ClipState> clip(at);
    const Update update = {.grad = grad.view(),
                           .master = b.master.mut(),
                           .weights = b.separate ? b.weights.mut() : MutView{},
                           .segments = ranges_.view(),
                           .scalars = scalars.view(),
                           .clip = clip.view(),
                           .seed = kSeed};
    if (lion_) {
      backend.lion({.update = update, .m = b.m.mut(), .beta1 = betas[0], .beta2 = betas[1]}, backends_.stream());
    } else {
      backend.adamw(
          {.update = update, .m = b.m.mut(), .v = b.v.mut(), .beta1 = betas[0], .beta2 = betas[1], .eps = 1e-8},
          backends_.stream());
    }
    backends_.finish();
  }

  EveryBackend backends_;
  const DeviceStruct<std::array<UpdateSegment, 4>> ranges_{kRanges};
  bool lion_ = false;
};

StepScalars numbers_at(int step) {
  return {.lr = 1e-2 / step,
          .beta1_correction = 1 - std::pow(0.9, step),
          .beta2_correction = 1 - std::pow(0.95, step),
          .philox_step = kFirstStep + static_cast<uint64_t>(step)};
}

// With betas of zero the new moments are g and g^2, which fp32 holds exactly.
TEST_F(NarrowStateTest, TheDrawDecidesToTheBit) {
  HostMatrix grad(DType::kFloat32, 1, kFlat);
  const HostMatrix random = random_matrix(DType::kFloat64, 1, kFlat, 5);
  for (int64_t i = 0; i < kFlat; ++i)  // 12 bits, of many sizes; some are zero
    grad.set(i, std::ldexp(std::round(random.at(i) * 1000), static_cast<int>(i % 40) - 30));
  for (const NarrowCase& c : kCases) {
    for (const uint64_t philox_step : {uint64_t{0}, uint64_t{4'000'000'123}}) {
      backends_.each(
          [&](Backend& backend) {
            Buffers b(c);
            step(backend, b, grad, {.lr = 1e-3, .philox_step = philox_step}, {}, {0, 0});
            return Outputs{b.m, b.v};
          },
          [&](const Outputs& out) {
            for (const UpdateSegment& s : kRanges) {
              for (int64_t i = 0; i < s.size; ++i) {
                const double g = grad.at(s.flat_begin + i);
                ASSERT_EQ(out[0].at(s.packed_begin + i), rounded_by(g, draw_of(s, i, philox_step, 0))) << i;
                ASSERT_EQ(out[1].at(s.packed_begin + i), rounded_by(g * g, draw_of(s, i, philox_step, 1))) << i;
              }
            }
          });
      if (HasFatalFailure()) return;
    }
  }
}

// Over many draws the mean is the value itself, and the two moments are rounded independently.
TEST_F(NarrowStateTest, TheMeanOverDrawsIsTheValue) {
  constexpr int kSteps = 24;
  for (const double value : {1.001, -0.7501, 3.97e-5}) {
    HostMatrix grad(DType::kFloat32, 1, kFlat);
    grad.fill(value);
    const double x[] = {grad.at(0), static_cast<float>(grad.at(0) * grad.at(0))};
    double up[2] = {}, both = 0, count = 0, share[2];
    for (int n = 0; n < kSteps; ++n) {
      Buffers b({DType::kFloat32, true});
      step(backends_.one(), b, grad, {.philox_step = static_cast<uint64_t>(n)}, {}, {0, 0});
      for (const UpdateSegment& s : kRanges) {
        for (int64_t i = s.packed_begin; i < s.packed_begin + s.size; ++i) {
          const bool m = std::abs(b.m.at(i)) > std::abs(x[0]), v = b.v.at(i) > x[1];
          up[0] += m;
          up[1] += v;
          both += m && v;
          ++count;
        }
      }
    }
    for (int state = 0; state < 2; ++state) {
      const double unit = std::ldexp(1.0, std::ilogb(x[state]) - 7);
      share[state] = std::fmod(std::abs(x[state]), unit) / unit;  // how often it must be rounded away from zero
      ASSERT_GT(share[state], 0.01);
      EXPECT_NEAR(up[state] / count, share[state], 5 * std::sqrt(share[state] * (1 - share[state]) / count)) << value;
    }
    const double product = share[0] * share[1];
    EXPECT_NEAR(both / count, product, 5 * std::sqrt(product * (1 - product) / count)) << value;
  }
}

/// Checks a step of AdamW or Lion from what was before it, in double.
void check_step(bool lion, const Outputs& before, const Outputs& after, const HostMatrix& grad, int step,
                const ClipState& clip, const NarrowCase& c) {
  constexpr double kOff = 4 * 0x1p-24;
  const StepScalars k = numbers_at(step);
  std::vector<bool> updated(static_cast<size_t>(kOwned));
  for (const UpdateSegment& s : kRanges) {
    for (int64_t i = 0; i < s.size; ++i) {
      const int64_t flat = s.flat_begin + i, packed = s.packed_begin + i, at = c.separate ? packed : flat;
      updated[static_cast<size_t>(packed)] = true;
      const double g = grad.at(flat) * clip.clip_scale, m_old = before[1].at(packed), w_old = before[0].at(at);
      const double beta = lion ? 0.99 : 0.9, m = beta * m_old + (1 - beta) * g, lr = k.lr * s.lr_multiplier;
      expect_rounded(after[1].at(packed), m, kOff * (std::abs(m_old) + std::abs(g)), draw_of(s, i, k.philox_step, 0),
                     str_cat("m of ", packed, " after step ", step));
      double move = 0;
      if (lion) {
        const double direction = 0.9 * m_old + (1 - 0.9) * g;
        if (std::abs(direction) < 1e-6 * (std::abs(m_old) + std::abs(g))) continue;  // rounding decides the sign
        move = direction > 0 ? 1 : direction < 0 ? -1 : 0;
      } else {
        const double v = 0.95 * before[2].at(packed) + 0.05 * g * g;
        expect_rounded(after[2].at(packed), v, kOff * v, draw_of(s, i, k.philox_step, 1),
                       str_cat("v of ", packed, " after step ", step));
        move = (m / k.beta1_correction) / (std::sqrt(v / k.beta2_correction) + 1e-8);
      }
      // Besides rounding, m may be the difference of two larger numbers.
      const double w = w_old - lr * s.weight_decay * w_old - lr * move;
      ASSERT_NEAR(after[0].at(at), w, 0x1p-22 * (std::abs(w_old) + 16 * lr)) << at << " after step " << step;
      const double expected = c.separate ? rounded(c.weights, after[0].at(at)) : 7;
      ASSERT_EQ(after[3].at(flat), expected) << flat;
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  for (int64_t i = 0; i < kOwned; ++i)
    ASSERT_TRUE(updated[static_cast<size_t>(i)] || after[1].at(i) == 0) << "outside of all segments: " << i;
}

TEST_F(NarrowStateTest, EveryStepFollowsTheAlgorithmFromTheStoredState) {
  constexpr int kSteps = 4;
  std::vector<HostMatrix> grads;
  std::vector<ClipState> clips;
  for (int n = 1; n <= kSteps; ++n) {
    grads.push_back(random_matrix(DType::kFloat32, 1, kFlat, static_cast<uint64_t>(100 + n)));
    clips.push_back({.clip_scale = n % 3 == 0 ? 0.5 : 1.0, .skip = n == 2 ? 1 : 0});
  }
  for (const bool lion : {false, true}) {
    lion_ = lion;
    for (const NarrowCase& c : kCases) {
      if (lion && c.weights != DType::kBFloat16) continue;  // what they share has been seen
      SCOPED_TRACE(str_cat(lion ? "lion" : "adamw", ", weights ", name_of(c.weights), c.separate ? " separate" : ""));
      backends_.each(
          [&](Backend& backend) {
            Buffers b(c);
            Outputs all = {b.master, b.m, b.v, b.weights};
            for (int n = 1; n <= kSteps; ++n) {
              const auto at = static_cast<size_t>(n - 1);
              step(backend, b, grads[at], numbers_at(n), clips[at],
                   lion ? std::vector<double>{0.9, 0.99} : std::vector<double>{0.9, 0.95});
              all.insert(all.end(), {b.master, b.m, b.v, b.weights});
            }
            return all;
          },
          [&](const Outputs& out) {
            for (int n = 1; n <= kSteps && !HasFatalFailure(); ++n) {
              const auto from = out.begin() + 4 * (n - 1);
              const Outputs before(from, from + 4), after(from + 4, from + 8);
              if (clips[static_cast<size_t>(n - 1)].skip != 0) {
                ASSERT_TRUE(before == after) << "a step that is skipped";
              } else {
                check_step(lion, before, after, grads[static_cast<size_t>(n - 1)], n, clips[static_cast<size_t>(n - 1)],
                           c);
              }
            }
          });
      if (HasFatalFailure()) return;
    }
  }
}

// The next number above the largest NaN has the bits of -0, and the smallest NaN the upper half of an infinity.
TEST_F(NarrowStateTest, WhatIsNotFiniteStaysSo) {
  const double kInf = std::numeric_limits<double>::infinity();
  HostMatrix grad(DType::kFloat32, 1, kFlat);
  grad.fill(1);
  auto* const bits = static_cast<uint32_t*>(grad.mut().data);
  for (int64_t i = 4; i < 104; ++i) {
    const uint32_t kinds[] = {0x7FFFFFFFU, 0x7F800001U, 0xFFFFFFFFU, 0x7F800000U, 0xFF800000U};
    bits[i] = kinds[i % 5];
  }
  backends_.each(
      [&](Backend& backend) {
        Buffers b({DType::kFloat32, true});
        step(backend, b, grad, numbers_at(1), {}, {0, 0});
        return Outputs{b.m, b.v};
      },
      [&](const Outputs& out) {
        for (int64_t i = 4; i < 104; ++i) {
          const double m = out[0].at(i - 4), v = out[1].at(i - 4);
          if (i % 5 < 3) {
            ASSERT_TRUE(std::isnan(m) && std::isnan(v)) << i << ": " << m << " and " << v;
          } else {
            ASSERT_EQ(m, i % 5 == 3 ? kInf : -kInf) << i;
            ASSERT_EQ(v, kInf) << i;
          }
        }
      });
}

}  // namespace
}  // namespace ashlar::test
