// Arithmetic, comparisons and conversions, each operation of the language that kernels use.
#include "kernels/cuda/dev/vector.h"
#include "tests/gpu/conformance/cases.h"

namespace ashlar::ASHLAR_DEV::conformance {
namespace {

__global__ void fp32_arithmetic(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const float a = __uint_as_float(in[3 * i]), b = __uint_as_float(in[3 * i + 1]), c = __uint_as_float(in[3 * i + 2]);
  uint32_t* const to = out + 12 * i;
  to[0] = word(__fadd_rn(a, b));
  to[1] = word(__fsub_rn(a, b));
  to[2] = word(__fmul_rn(a, b));
  to[3] = word(a / b);
  to[4] = word(fmaf(a, b, c));
  to[5] = word(sqrtf(a));
  to[6] = word(__frcp_rn(a));
  to[7] = word(fminf(a, b));
  to[8] = word(fmaxf(a, b));
  to[9] = word(fabsf(a));
  to[10] = word(-a);
  to[11] = word(__saturatef(a));
}

__global__ void fp64_arithmetic(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const double a = get(in + 6 * i), b = get(in + 6 * i + 2), c = get(in + 6 * i + 4);
  uint32_t* const to = out + 20 * i;
  put(to, a + b);
  put(to + 2, a * b);
  put(to + 4, a / b);
  put(to + 6, fma(a, b, c));
  put(to + 8, sqrt(a));
  put(to + 10, fmin(a, b));
  put(to + 12, fmax(a, b));
  put(to + 14, fabs(a));
  put(to + 16, -a);
  put(to + 18, 1.0 / a);
}

__global__ void comparisons(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const float a = __uint_as_float(in[2 * i]), b = __uint_as_float(in[2 * i + 1]);
  const auto s = static_cast<int>(in[2 * i]), t = static_cast<int>(in[2 * i + 1]);
  const uint32_t u = in[2 * i], v = in[2 * i + 1];
  uint32_t bits = 0;
  bits |= (a < b ? 1U : 0U) | (a <= b ? 2U : 0U) | (a == b ? 4U : 0U) | (a != b ? 8U : 0U) | (!(a > b) ? 16U : 0U);
  bits |= (s < t ? 32U : 0U) | (s >= t ? 64U : 0U) | (u < v ? 128U : 0U) | (u >= v ? 256U : 0U);
  bits |= (a != a ? 512U : 0U) | ((a < b) != (s < t) ? 1024U : 0U) | ((a < b && u < v) || s == t ? 2048U : 0U);
  out[i] = bits;
}

__global__ void integers_of_32_bits(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const uint32_t a = in[2 * i], b = in[2 * i + 1];
  const auto s = static_cast<int>(a), t = static_cast<int>(b | 1U);  // no division by 0 or of the smallest by -1
  uint32_t* const to = out + 20 * i;
  to[0] = a + b;
  to[1] = a - b;
  to[2] = a * b;
  to[3] = __umulhi(a, b);
  to[4] = a / (b | 1U);
  to[5] = a % (b | 1U);
  to[6] = static_cast<uint32_t>((s >> 1) / t);
  to[7] = static_cast<uint32_t>((s >> 1) % t);
  to[8] = a << (b % 32);
  to[9] = a >> (b % 32);
  to[10] = static_cast<uint32_t>(s >> (b % 32));
  to[11] = (a & b) ^ (~a | b);
  to[12] = static_cast<uint32_t>(__popc(a));
  to[13] = static_cast<uint32_t>(__clz(s));
  to[14] = static_cast<uint32_t>(__ffs(s));
  to[15] = static_cast<uint32_t>(min(s, t));
  to[16] = static_cast<uint32_t>(max(s, t));
  to[17] = min(a, b);
  to[18] = max(a, b);
  to[19] = (a & 0xff00ff00U) | (b & 0x00ff00ffU);
}

__global__ void integers_of_64_bits(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const uint64_t a = uint64_t{in[4 * i + 1]} << 32 | in[4 * i], b = uint64_t{in[4 * i + 3]} << 32 | in[4 * i + 2];
  const auto s = static_cast<int64_t>(a), t = static_cast<int64_t>(b | 1U);
  const uint64_t results[] = {
      a + b,
      a - b,
      a * b,
      a / (b >> 20 | 1U),
      a % (b >> 20 | 1U),
      static_cast<uint64_t>((s >> 1) / t),
      a << (b % 64),
      a >> (b % 64),
      static_cast<uint64_t>(s >> (b % 64)),
      uint64_t{in[4 * i]} * in[4 * i + 2],
      static_cast<uint64_t>(static_cast<int64_t>(static_cast<int>(in[4 * i])) * static_cast<int>(in[4 * i + 2])),
      static_cast<uint64_t>(s < t)};
  for (int k = 0; k < 12; ++k) {
    out[24 * i + 2 * k] = static_cast<uint32_t>(results[k]);
    out[24 * i + 2 * k + 1] = static_cast<uint32_t>(results[k] >> 32);
  }
}

/// Of numbers that the narrower type holds; what C++ leaves open beyond is no kernel's business.
__global__ void conversions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const uint32_t u = in[2 * i];
  const auto s = static_cast<int>(u);
  const int64_t wide = static_cast<int64_t>(s) * static_cast<int>(in[2 * i + 1]);
  const float f = static_cast<float>(s) * 0x1p-8F;
  uint32_t* const to = out + 20 * i;
  to[0] = word(static_cast<float>(s));
  to[1] = word(static_cast<float>(u));
  to[2] = word(static_cast<float>(wide));
  put(to + 3, static_cast<double>(s));
  put(to + 5, static_cast<double>(u));
  put(to + 7, static_cast<double>(wide));
  to[9] = static_cast<uint32_t>(static_cast<int>(f));
  to[10] = static_cast<uint32_t>(fabsf(f));
  to[11] = static_cast<uint32_t>(static_cast<int64_t>(static_cast<double>(wide) * 0x1p-30));
  to[12] = word(static_cast<float>(static_cast<double>(wide) * 1.1));
  put(to + 13, static_cast<double>(f));
  to[15] = word(rintf(f));
  to[16] = word(floorf(f));
  to[17] = word(ceilf(f));
  to[18] = word(truncf(f));
  to[19] = static_cast<uint32_t>(static_cast<uint8_t>(u)) << 16 | static_cast<uint16_t>(u >> 3);
}

__global__ void bf16_conversions(const uint32_t* in, uint32_t* out) {
  const int i = thread_of_grid();
  const float both[2] = {__uint_as_float(in[4 * i]), __uint_as_float(in[4 * i + 1])};
  const double wide = get(in + 4 * i + 2);
  const auto keep = [](BF16 x) { return word(widen(x)); };
  uint32_t* const to = out + 6 * i;
  to[0] = keep(narrow<BF16>(both[0]));
  to[1] = keep(narrow<BF16>(wide));
  const Vec<BF16, 2> pair = narrow<BF16>(both);
  to[2] = word(pair.wide(0));
  to[3] = word(pair.wide(1));
  to[4] = keep(pair.get(1));
  BF16 half;
  half.bits = static_cast<uint16_t>(in[4 * i] >> 16);
  to[5] = keep(half);
}

}  // namespace

std::span<const Case> arithmetic_cases() {
  static const Case cases[] = {
      {.name = "fp32_arithmetic", .kernel = fp32_arithmetic, .inputs = Inputs::kFloats, .words_in = 3, .words_out = 12},
      {.name = "fp64_arithmetic",
       .kernel = fp64_arithmetic,
       .inputs = Inputs::kDoubles,
       .words_in = 6,
       .words_out = 20},
      {.name = "comparisons", .kernel = comparisons, .inputs = Inputs::kFloats, .words_in = 2, .words_out = 1},
      {.name = "integers_of_32_bits",
       .kernel = integers_of_32_bits,
       .inputs = Inputs::kBits,
       .words_in = 2,
       .words_out = 20},
      {.name = "integers_of_64_bits",
       .kernel = integers_of_64_bits,
       .inputs = Inputs::kBits,
       .words_in = 4,
       .words_out = 24},
      {.name = "conversions", .kernel = conversions, .inputs = Inputs::kBits, .words_in = 2, .words_out = 20},
      {.name = "bf16_conversions",
       .kernel = bf16_conversions,
       .inputs = Inputs::kFloats,
       .words_in = 4,
       .words_out = 6},
  };
  return cases;
}

}  // namespace ashlar::ASHLAR_DEV::conformance
