#pragma once

/// The instruction sets for which kernels are compiled: AVX-512 and AVX2, chosen at run time, and SSE4.2 as the
/// baseline. Include before any Highway header. (Highway's baselines below SSE4.2 lack the integer products and half
/// vectors that these kernels use.) A build for one machine (ASHLAR_NATIVE) compiles kernels for one instruction
/// set only; ASHLAR_NATIVE_ISA is the number of this instruction set in enum Isa.
#ifndef ASHLAR_NATIVE_ISA
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_AVX3_DL)
#else
#if ASHLAR_NATIVE_ISA == 2
#define HWY_BASELINE_TARGETS HWY_AVX3
#elif ASHLAR_NATIVE_ISA == 1
#define HWY_BASELINE_TARGETS HWY_AVX2
#else
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
#define HWY_DISABLED_TARGETS (~HWY_BASELINE_TARGETS)
#endif
