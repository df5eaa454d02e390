#pragma once

#include <cmath>

/// What the approximate instructions of PTX give here: one table, read by kernels compiled for the emulator and by the
/// interpreter of tests/ptx, so that both have the same bits. A GPU's own differ by what the PTX ISA allows, given
/// below (absolute where it says so): no test may ask more of a kernel. `ftz`: subnormal operands and results become
/// zero.
namespace ashlar::emulator::approximate {

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

/// 2^x; relative error 2^-22.
float ex2(float x, bool ftz);
/// log2(x); absolute error 2^-22 for 1/2 < x < 2, relative 2^-22 elsewhere.
float lg2(float x, bool ftz);
/// Absolute errors of 2^-20.5 in -pi..pi.
float sin(float x, bool ftz);
float cos(float x, bool ftz);
/// Relative error 2^-10.987.
float tanh(float x);
/// 1/x, 1 ulp.
float rcp(float x, bool ftz);
/// The upper 32 bits of 1/x, subnormals flushed; the lower are zero.
double rcp(double x);
/// Square root and its reciprocal; relative errors 2^-23 and 2^-22.9.
float sqrt(float x, bool ftz);
float rsqrt(float x, bool ftz);
double rsqrt(double x);
/// a/b, 2 ulp for |b| to 2^126; for larger ones 0, of infinity NaN.
float div(float a, float b, bool ftz);

}  // namespace ashlar::emulator::approximate
