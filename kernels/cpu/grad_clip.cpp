// 1. Sums of squares by tensor, for the gradient norm: threads sum chunks of elements, then the sums of each tensor's
//    chunks are added in order. Reads 2 to 8 B per element for 2 flops in double.
// 2. The norm, the clip scale and the skip flag, computed from these sums: a few hundred numbers.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/grad_clip.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE double sum_squares_of(const T* x, int64_t count) {
  const hn::ScalableTag<double> d;
  return sum_lanes(d, count, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    if constexpr (std::is_same_v<T, double>) {
      const auto v = load(d, x + c, part);
      return hn::MulAdd(v, v, acc);
    } else {
      const hn::Rebind<float, decltype(d)> df;
      const auto v = hn::PromoteTo(d, load(df, x + c, part));
      return hn::MulAdd(v, v, acc);
    }
  });
}

void sum_squares_impl(const SumSquares& a, Threads& threads) {
  const std::span<const SquaresSegment> segments = table_of<SquaresSegment>(a.segments);
  double* const partials = static_cast<double*>(a.partials.data);
  double* const sums = static_cast<double*>(a.sums.data);
  const int64_t chunks = segments.empty() ? 0 : segments.back().first_chunk + segments.back().num_chunks();
  ASHLAR_CHECK(chunks <= a.partials.size(), "sum_squares: ", chunks, " chunks, room for ", a.partials.size());
  with_storage("sum_squares", a.x.dtype, [&](auto t) {
    const auto* x = static_cast<const decltype(t)*>(a.x.data);
    parallel_for(threads, chunks, 4, [&](int64_t begin, int64_t end) {
      auto segment = std::partition_point(segments.begin(), segments.end(), [&](const SquaresSegment& g) {
        return g.first_chunk + g.num_chunks() <= begin;
      });
      for (int64_t i = begin; i < end; ++i) {
        while (segment->first_chunk + segment->num_chunks() <= i) ++segment;
        const int64_t into = segment->first % SumSquares::kChunk, k = i - segment->first_chunk;
        const int64_t from = std::max(k * SumSquares::kChunk - into, int64_t{0});
        const int64_t to = std::min((k + 1) * SumSquares::kChunk - into, segment->size);
        partials[i] = sum_squares_of(x + segment->begin + from, to - from);
      }
    });
  });
  std::fill(sums, sums + a.sums.size(), 0.0);
  for (const SquaresSegment& segment : segments) {
    double sum = 0;
    for (int64_t i = 0; i < segment.num_chunks(); ++i) sum += partials[segment.first_chunk + i];
    sums[segment.slot] += sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {

ASHLAR_LAUNCH_FOR_ISA(SumSquares, sum_squares_impl)

void CpuBackend::launch(const ClipGradients& args, Stream&) {
  ClipState& state = struct_of<ClipState>(args.state);
  if (state.skip != 0) return;
  const auto* squares = static_cast<const double*>(args.squares.data);
  const auto* others = static_cast<const double*>(args.also_finite.data);
  const double norm = std::sqrt(std::accumulate(squares, squares + args.squares.size(), 0.0));
  const bool finite = std::isfinite(norm) && std::all_of(others, others + args.also_finite.size(),
                                                         [](double value) { return std::isfinite(value); });
  state = {.norm = norm,
           .clip_scale = args.max_norm > 0 && norm > args.max_norm ? args.max_norm / norm : 1.0,
           .skip = finite ? 0 : 1};
  std::copy(squares, squares + args.squares.size(), static_cast<double*>(args.kept.data));
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
