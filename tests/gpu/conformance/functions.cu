// Functions: ours of dev/math.h, whose words are the same everywhere, and the approximate instructions.
#include "core/base/philox.h"
#include "kernels/cuda/dev/math.h"
#include "tests/gpu/conformance/cases.h"

namespace ashlar::ASHLAR_DEV::conformance {
namespace {

__global__ void fp32_functions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const float x = __uint_as_float(in[i]);
  float s, r, distribution, density;
  logistic<false>(x, s, r);
  normal_distribution<false>(x, distribution, density);
  const float results[] = {exponential(x), logarithm(x), s,       r,
                           distribution,   density,      root(x), is_finite(x) ? 1.0F : 0.0F};
  for (int k = 0; k < 8; ++k) out[8 * i + k] = word(results[k]);
}

__global__ void fp64_functions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const double x = get(in + 2 * i);
  double s, r, distribution, density, cosine, sine;
  logistic<false>(x, s, r);
  normal_distribution<false>(x, distribution, density);
  cosine_and_sine(x >= 0 && x <= 6.28 ? x : 1.0, cosine, sine);
  const double results[] = {exponential(x), logarithm(x), s, r, distribution, density, cosine, sine};
  for (int k = 0; k < 8; ++k) put(out + 16 * i + 2 * k, results[k]);
}

__global__ void approximate_functions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const float x = __uint_as_float(in[i]);
  const float positive = fabsf(x) + 0.5F;
  float s, r, distribution, density;
  logistic<true>(x, s, r);
  normal_distribution<true>(x, distribution, density);
  const float results[] = {ex2(x),
                           exponential<true>(x),
                           reciprocal<true>(positive + 1.0F),
                           s,
                           r,
                           distribution,
                           density,
                           rsqrtf(positive),
                           __fdividef(x, positive),
                           __expf(x),
                           __log2f(positive),
                           __logf(positive),
                           __powf(positive, 1.5F),
                           __exp10f(x),
                           __sinf(x * 0.5F),
                           __cosf(x * 0.5F)};
  for (int k = 0; k < 16; ++k) out[16 * i + k] = word(results[k]);
}

/// Whole exponents from -160 to 159: subnormal results are zero, others a power of two.
__global__ void powers_of_two(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const auto n = static_cast<int>(in[i] % 320) - 160;
  out[i] = word(ex2(static_cast<float>(n)));
}

__global__ void random_words(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const Philox::Counter words = Philox::block(in[4 * i] | uint64_t{in[4 * i + 1]} << 32, in[4 * i + 2], in[4 * i + 3]);
  for (int k = 0; k < 4; ++k) out[4 * i + k] = words[static_cast<size_t>(k)];
}

}  // namespace

std::span<const Case> function_cases() {
  static const Case cases[] = {
      {.name = "fp32_functions", .kernel = fp32_functions, .inputs = Inputs::kFloats, .words_in = 1, .words_out = 8},
      {.name = "fp64_functions", .kernel = fp64_functions, .inputs = Inputs::kDoubles, .words_in = 2, .words_out = 16},
      // 2^-22 for exponentials, times the argument of the last, and 2^-20.5 absolute for sin and cos
      {.name = "approximate_functions",
       .kernel = approximate_functions,
       .inputs = Inputs::kUnit,
       .words_in = 1,
       .words_out = 16,
       .allowed = 0x1p-18,
       .size = 1},
      {.name = "powers_of_two",
       .kernel = powers_of_two,
       .inputs = Inputs::kBits,
       .words_in = 1,
       .words_out = 1,
       .allowed = 0x1p-21},
      {.name = "random_words", .kernel = random_words, .inputs = Inputs::kBits, .words_in = 4, .words_out = 4},
  };
  return cases;
}

}  // namespace ashlar::ASHLAR_DEV::conformance
