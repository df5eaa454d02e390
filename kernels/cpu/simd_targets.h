#pragma once

/// The instruction sets for which kernels are compiled: AVX-512 and AVX2, chosen at run time, and SSE4.2 as the
/// baseline. Include before any Highway header. (Highway's baselines below SSE4.2 lack the integer products and half
/// vectors that these kernels use.)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX3_DL)
