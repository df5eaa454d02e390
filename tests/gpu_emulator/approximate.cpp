#include "tests/gpu_emulator/approximate.h"

#include <bit>
#include <cstdint>

namespace ashlar::emulator::approximate {

namespace {

template <typename F>
float with_flushing(float x, bool ftz, const F& f) {
  return ftz ? flushed(f(flushed(x))) : f(x);
}

}  // namespace

float ex2(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return std::exp2(v); });
}
float lg2(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return std::log2(v); });
}
float sin(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return std::sin(v); });
}
float cos(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return std::cos(v); });
}
float tanh(float x) { return std::tanh(x); }
float rcp(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return 1.0F / v; });
}
double rcp(double x) {
  if (std::fpclassify(x) == FP_SUBNORMAL) x = std::copysign(0.0, x);
  const double y = 1.0 / x;
  return std::fpclassify(y) == FP_SUBNORMAL ? std::copysign(0.0, y)
                                            : std::bit_cast<double>(std::bit_cast<uint64_t>(y) & 0xffffffff00000000ULL);
}
float sqrt(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return std::sqrt(v); });
}
float rsqrt(float x, bool ftz) {
  return with_flushing(x, ftz, [](float v) { return 1.0F / std::sqrt(v); });
}
double rsqrt(double x) { return 1.0 / std::sqrt(x); }
float div(float a, float b, bool ftz) {
  if (std::fabs(b) > 0x1p126F && !std::isinf(b)) return a * std::copysign(0.0F, b);
  return ftz ? flushed(flushed(a) / flushed(b)) : a / b;
}

}  // namespace ashlar::emulator::approximate
