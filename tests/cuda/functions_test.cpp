// The functions of kernels/cuda/dev/math.h against wider arithmetic: fp32 against fp64, fp64 against long double, over
// the whole range, every exponent, subnormal results and what is no number. Bounds in units in the last place.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>

#include "kernels/cuda/dev/math.h"
#include "tests/support/long_form.h"

namespace ashlar::emulated {
namespace {

template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

/// |got - expected| by the distance of T's numbers at `expected`.
template <typename T, typename Wide>
double error_in_ulp(T got, Wide expected) {
  if (std::fabs(expected) >
      static_cast<Wide>(std::numeric_limits<T>::max())) {  // the nearest is the largest or infinity
    const Wide beyond = std::ldexp(Wide{1}, std::numeric_limits<T>::max_exponent);
    expected = std::copysign(std::fmin(std::fabs(expected), beyond), expected);
    if (std::isinf(got))
      return static_cast<double>((beyond - std::fabs(expected)) / (beyond - std::numeric_limits<T>::max()));
  }
  int exponent = 0;
  std::frexp(expected, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const Wide unit = std::ldexp(Wide{1}, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<Wide>(got) - expected) / unit);
}

struct Worst {
  double ulp = 0, at = 0;

  void see(double now, double x) {
    if (!(now <= ulp)) ulp = now, at = x;
  }
};

/// f(x) for bit patterns of fp32 all over: each in the long form, else a 997th, which meets every exponent.
template <typename F>
void each_float(const F& f) {
  const uint64_t step = testing::long_form() ? 1 : 997;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += step) f(std::bit_cast<float>(static_cast<uint32_t>(bits)));
}
/// Random mantissas under each exponent and sign.
template <typename F>
void each_double(const F& f) {
  std::mt19937_64 random(1);
  const int mantissas = testing::long_form() ? 50'000 : 200;
  for (uint64_t top = 0; top < 4096; ++top) {
    for (int i = 0; i < mantissas; ++i) f(std::bit_cast<double>(top << 52 | random() >> 12));
  }
}

TEST(Functions, ExponentialOfFp32) {
  Worst worst;
  each_float([&](float x) {
    const float got = exponential(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got));
    } else {
      worst.see(error_in_ulp(got, std::exp(static_cast<double>(x))), x);
    }
  });
  for (float x = -104.5F; x < 89.5F; x += 0x1p-13F) worst.see(error_in_ulp(exponential(x), std::exp(double{x})), x);
  RecordProperty("ulp", std::to_string(worst.ulp));
  EXPECT_LT(worst.ulp, 1.05) << "at " << worst.at;
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-0.0F), 1.0F);
  EXPECT_EQ(exponential(kInfinity<float>), kInfinity<float>);
  EXPECT_EQ(exponential(-kInfinity<float>), 0.0F);
}

TEST(Functions, ExponentialOfFp64) {
  Worst worst;
  const auto see = [&](double x) { worst.see(error_in_ulp(exponential(x), std::exp(static_cast<long double>(x))), x); };
  each_double([&](double x) {
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(exponential(x)));
    } else {
      see(x);
    }
  });
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> within(-746, 710);
  for (int i = 0; i < 300'000; ++i) see(within(random));
  RecordProperty("ulp", std::to_string(worst.ulp));
  EXPECT_LT(worst.ulp, 1.01) << "at " << worst.at;
  EXPECT_EQ(exponential(0.0), 1.0);
  EXPECT_EQ(exponential(kInfinity<double>), kInfinity<double>);
  EXPECT_EQ(exponential(-kInfinity<double>), 0.0);
}

/// What a logarithm says of 0, of negative numbers, infinity and NaN.
template <typename T>
void check_special_logarithms() {
  EXPECT_EQ(logarithm(T{0}), -kInfinity<T>);
  EXPECT_EQ(logarithm(-T{0}), -kInfinity<T>);
  EXPECT_EQ(logarithm(T{1}), T{0});
  EXPECT_EQ(logarithm(kInfinity<T>), kInfinity<T>);
  EXPECT_TRUE(std::isnan(logarithm(-kInfinity<T>)));
  EXPECT_TRUE(std::isnan(logarithm(-std::numeric_limits<T>::denorm_min())));
  EXPECT_TRUE(std::isnan(logarithm(kNaN<T>)));
}

TEST(Functions, LogarithmOfFp32) {
  Worst worst;
  each_float([&](float x) {
    if (x > 0 && !std::isinf(x)) worst.see(error_in_ulp(logarithm(x), std::log(static_cast<double>(x))), x);
  });
  // Near 1, where the logarithm is small.
  for (float x = 0.5F; x < 2; x += 0x1p-20F) worst.see(error_in_ulp(logarithm(x), std::log(double{x})), x);
  const float worst_of_all = 0.638907015F;  // as the long form finds it
  worst.see(error_in_ulp(logarithm(worst_of_all), std::log(double{worst_of_all})), worst_of_all);
  RecordProperty("ulp", std::to_string(worst.ulp));
  EXPECT_LT(worst.ulp, 0.901) << "at " << worst.at;
  check_special_logarithms<float>();
}

TEST(Functions, LogarithmOfFp64) {
  Worst worst;
  const auto see = [&](double x) { worst.see(error_in_ulp(logarithm(x), std::log(static_cast<long double>(x))), x); };
  each_double([&](double x) {
    if (x > 0 && !std::isinf(x)) see(x);
  });
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> within(0.5, 2);
  for (int i = 0; i < 300'000; ++i) see(within(random));
  RecordProperty("ulp", std::to_string(worst.ulp));
  EXPECT_LT(worst.ulp, 0.9) << "at " << worst.at;
  check_special_logarithms<double>();
}

TEST(Functions, CosineAndSine) {
  Worst worst;
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> within(0, 2 * std::numbers::pi);
  const auto see = [&](double x) {
    double c = 0, s = 0;
    cosine_and_sine(x, c, s);
    worst.see(error_in_ulp(c, std::cos(static_cast<long double>(x))), x);
    worst.see(error_in_ulp(s, std::sin(static_cast<long double>(x))), x);
  };
  for (int i = 0; i < 300'000; ++i) see(within(random));
  for (int quarter = 0; quarter <= 4; ++quarter) {  // near their zeros
    const double zero = quarter * (std::numbers::pi / 2);
    for (double away = 0x1p-50; away < 0.1; away *= 1.01) {
      see(zero - away < 0 ? away : zero - away);
      see(zero + away > 2 * std::numbers::pi ? zero - away : zero + away);
    }
    see(zero);
  }
  RecordProperty("ulp", std::to_string(worst.ulp));
  EXPECT_LT(worst.ulp, 1.5) << "at " << worst.at;
}

/// Both tails to where they are subnormal: the exponential, and four to six roundings.
TEST(Functions, NormalDistribution) {
  Worst fp32[2], fp64[2];
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> within(-38, 38);
  const auto phi = [](long double x) { return std::erfc(-x / std::numbers::sqrt2_v<long double>) / 2; };
  const auto density_of = [](long double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
  };
  for (int i = 0; i < 200'000; ++i) {
    const double x = i % 2 == 0 ? within(random) : within(random) / 10;
    double distribution = 0, density = 0;
    normal_distribution<false>(x, distribution, density);
    fp64[0].see(error_in_ulp(distribution, phi(x)), x);
    fp64[1].see(error_in_ulp(density, density_of(x)), x);
    const auto narrow = static_cast<float>(x);
    float distribution32 = 0, density32 = 0;
    normal_distribution<false>(narrow, distribution32, density32);
    fp32[0].see(error_in_ulp(distribution32, static_cast<double>(phi(narrow))), narrow);
    fp32[1].see(error_in_ulp(density32, static_cast<double>(density_of(narrow))), narrow);
  }
  for (const Worst& w : fp32) RecordProperty("fp32", std::to_string(w.ulp));
  for (const Worst& w : fp64) RecordProperty("fp64", std::to_string(w.ulp));
  EXPECT_LT(fp64[0].ulp, 6) << "at " << fp64[0].at;
  EXPECT_LT(fp64[1].ulp, 3.5) << "at " << fp64[1].at;
  EXPECT_LT(fp32[0].ulp, 8) << "at " << fp32[0].at;
  EXPECT_LT(fp32[1].ulp, 3.5) << "at " << fp32[1].at;
}

}  // namespace
}  // namespace ashlar::emulated
