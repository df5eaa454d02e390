#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/base/error.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/threads.h"

// Multiply-adds on registers only, without loads. There are enough independent chains to hide the latency of two units.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cpu_peak.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
constexpr int kChains = 24;
#else
constexpr int kChains = 12;
#endif

/// Runs `steps` rounds, each with one multiply-add per chain. Returns the flops per round. Adds the results to `sink`,
/// so that the compiler keeps the loop.
template <typename T>
HWY_ATTR double fma_rounds(int64_t steps, double* sink) {
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  Vec sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, static_cast<T>(i));
  const Vec x = hn::Set(d, static_cast<T>(0.999));
  const Vec y = hn::Set(d, static_cast<T>(0.001));
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(sum[i], x, y);
  }
  Vec total = hn::Zero(d);
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) total = hn::Add(total, sum[i]);
  *sink += static_cast<double>(hn::GetLane(total));
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d));
}

}  // namespace ashlar::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
namespace {

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")
double dot_rounds(int64_t steps, double* sink) {
  constexpr int kChains = 24;
  __m512 sum[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512i x = _mm512_set1_epi16(0x3c00);  // 2^-7 in bf16
  const __m512i y = _mm512_set1_epi16(0x3f00);  // 0.5 in bf16
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)x, (__m512bh)y);
  }
  __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) total = _mm512_add_ps(total, sum[i]);
  *sink += static_cast<double>(_mm512_cvtss_f32(total));
  return 2.0 * kChains * 32;
}
#pragma GCC pop_options

using Rounds = double (*)(int64_t steps, double* sink);

}  // namespace

double measure_peak(DType dtype, Threads& threads, Isa isa, double seconds) {
  using Clock = std::chrono::steady_clock;
  ASHLAR_CHECK(is_floating(dtype), "dtype = ", name_of(dtype));
  const bool dot = dtype == DType::kBFloat16 && isa == Isa::kAvx512Bf16;
  const Rounds rounds = dot                        ? &dot_rounds
                        : dtype == DType::kFloat64 ? ASHLAR_FOR_ISA(isa, fma_rounds<double>)
                                                   : ASHLAR_FOR_ISA(isa, fma_rounds<float>);
  // The time of a thread is its CPU time, so that preemption does not count as a slower core.
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  constexpr int64_t kSteps = 50'000;  // rounds of one measurement, about a millisecond
  std::vector<double> rates;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  struct alignas(64) OfThread {
    double rate = 0, sink = 0;
  };
  std::vector<OfThread> of_threads(static_cast<size_t>(threads.size()));
  double sink = 0;
  do {
    threads.run(threads.size(), [&](int thread, int) {
      OfThread& mine = of_threads[static_cast<size_t>(thread)];
      const double start = cpu_seconds();
      const double flops = rounds(kSteps, &mine.sink) * static_cast<double>(kSteps);
      mine.rate = flops / (cpu_seconds() - start);
    });
    double rate = 0;
    for (const OfThread& one : of_threads) {
      rate += one.rate;
      sink += one.sink;
    }
    rates.push_back(rate);
  } while (Clock::now() < end);
  ASHLAR_CHECK(sink != 0, "the loop was optimised away");
  // Other programs can only make a measurement slower, so the highest rates are the most accurate. The maximum itself
  // may be noise of the clock, so the result is the upper decile.
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() * 9 / 10];
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
