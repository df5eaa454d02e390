// 1. The sum of squares of each tensor, for the gradient norm. First each chunk of elements is summed by one warp.
//    Then, for each slot (element of `sums`), one warp adds the sums of the chunks in the slot's segments
//    (SquaresSegment), in order. Reads 2 to 8 B per element for 2 flops in double.
// 2. The norm, the clip scale and the skip flag. One warp computes them from these sums, which are a few hundred
//    numbers.

#include "core/backend/grad_clip.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// SquaresSegment::num_chunks on the device.
__device__ __forceinline__ int64_t chunks_of(const SquaresSegment& s) {
  constexpr int64_t kChunk = SumSquares::kChunk;
  return s.size == 0 ? 0 : (s.first % kChunk + s.size + kChunk - 1) / kChunk;
}

/// Returns the first index i of [0, count) for which behind(i) is false, or count if there is none. `behind` must be
/// true for all indices below the result and false for all others.
template <typename Behind>
__device__ __forceinline__ int64_t partition_point(int64_t count, const Behind& behind) {
  int64_t first = 0;
  for (int64_t last = count; first < last;) {
    const int64_t middle = (first + last) / 2;
    if (behind(middle)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

/// Returns start + values[0] + values[1] + ..., added in this order. Every lane gets the sum. The whole warp must call
/// it.
__device__ __forceinline__ double add_in_order(const double* values, int64_t count, double start) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  double sum = start;
  double next = lane < count ? values[lane] : 0.0;
  for (int64_t first = 0; first < count; first += 32) {
    const double mine = next;
    if (first + 32 + lane < count) next = values[first + 32 + lane];
    const auto here = static_cast<int>(min(count - first, int64_t{32}));
    for (int i = 0; i < here; ++i) sum += __shfl_sync(0xffffffffU, mine, i);
  }
  return sum;
}

/// A warp processes one chunk at a time. It  1. finds the chunk's segment  2. adds the squares, each lane of every 32nd
/// vector  3. adds the sums of the lanes. The lane of an element depends only on the element's position in the chunk.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const T* x, const SquaresSegment* segments, int64_t num_segments, double* partials,
                       int64_t most_chunks) {
  constexpr int W = kWidth<T>;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const SquaresSegment& last = segments[num_segments - 1];
  const int64_t chunks = min(most_chunks, last.first_chunk + chunks_of(last));
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t chunk = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; chunk < chunks; chunk += step) {
    // 1. find the segment of the chunk
    const int64_t s = partition_point(
        num_segments, [&](int64_t i) { return segments[i].first_chunk + chunks_of(segments[i]) <= chunk; });
    const SquaresSegment segment = segments[s];
    const int64_t into = segment.first % SumSquares::kChunk, k = chunk - segment.first_chunk;
    const int64_t from = max(k * SumSquares::kChunk - into, int64_t{0});
    const int64_t to = min((k + 1) * SumSquares::kChunk - into, segment.size);
    // 2. add the squares of this lane's elements
    const T* const data = x + segment.begin + from;
    const auto count = static_cast<int>(to - from);
    const bool vector = reinterpret_cast<uintptr_t>(data) % 16 == 0;
    double sum = 0;
#pragma unroll 4
    for (int c = lane * W; c < count; c += 32 * W) {
      const Vec<T, W> v = load_some<W>(data + c, count - c, vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) {
        const double value = v.wide(i);
        sum = fma(value, value, sum);
      }
    }
    // 3. add the sums of the lanes
    sum = warp_reduce(sum, Add());
    if (lane == 0) partials[chunk] = sum;
  }
}

/// One warp for each slot adds the chunks of the slot's segments in order. If `partials` has no room for all chunks of
/// a segment, the sum of its slot is NaN.
__global__ void __launch_bounds__(kThreads)
    sum_chunks_kernel(const SquaresSegment* segments, int64_t num_segments, const double* partials, int64_t most_chunks,
                      double* sums, int64_t slots) {
  const int64_t slot = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (slot >= slots) return;
  double total = 0;
  int64_t s = partition_point(num_segments, [&](int64_t i) { return segments[i].slot < slot; });
  for (; s < num_segments && segments[s].slot == slot; ++s) {
    const int64_t first = segments[s].first_chunk, count = chunks_of(segments[s]);
    if (first + count > most_chunks) {
      total = std::numeric_limits<double>::quiet_NaN();
    } else {
      total += add_in_order(partials + first, count, 0.0);
    }
  }
  if (threadIdx.x % 32 == 0) sums[slot] = total;
}

/// Launched with one warp.
__global__ void clip_gradients_kernel(const double* squares, int64_t n, const double* also_finite, int64_t others,
                                      ClipState* state, double* kept, double max_norm) {
  if (state->skip != 0) return;
  const auto lane = static_cast<int64_t>(threadIdx.x);
  const double norm = sqrt(add_in_order(squares, n, 0.0));
  int finite = is_finite(norm) ? 1 : 0;
  for (int64_t i = lane; i < others; i += 32) finite = finite != 0 && is_finite(also_finite[i]) ? 1 : 0;
  finite = __all_sync(0xffffffffU, finite);
  for (int64_t i = lane; i < n; i += 32) kept[i] = squares[i];
  __syncwarp();  // all lanes have read state->skip
  if (lane != 0) return;
  state->norm = norm;
  state->clip_scale = max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
  state->skip = finite != 0 ? 0 : 1;
}

}  // namespace

void CudaBackend::launch(const SumSquares& args, Stream& stream) {
  const auto* segments = static_cast<const SquaresSegment*>(args.segments.data);
  const auto num_segments = static_cast<int64_t>(table_of<SquaresSegment>(args.segments).size());
  auto* partials = static_cast<double*>(args.partials.data);
  const int64_t most_chunks = args.partials.size();
  if (num_segments > 0 && most_chunks > 0) {
    with_storage("sum_squares", args.x.dtype, [&](auto t) {
      using T = decltype(t);
      run_kernel(stream,
                 {.name = "sum_squares",
                  .grid = num_blocks(div_up(most_chunks, kWarps), 16 * kMultiprocessors),
                  .block = static_cast<unsigned>(kThreads)},
                 sum_squares_kernel<T>, static_cast<const T*>(args.x.data), segments, num_segments, partials,
                 most_chunks);
    });
  }
  const int64_t slots = args.sums.size();
  if (slots == 0) return;
  run_kernel(stream,
             {.name = "sum_chunks",
              .grid = static_cast<unsigned>(div_up(slots, kWarps)),
              .block = static_cast<unsigned>(kThreads)},
             sum_chunks_kernel, segments, num_segments, static_cast<const double*>(partials), most_chunks,
             static_cast<double*>(args.sums.data), slots);
}

void CudaBackend::launch(const ClipGradients& args, Stream& stream) {
  run_kernel(stream, {.name = "clip_gradients", .grid = 1U, .block = 32U}, clip_gradients_kernel,
             static_cast<const double*>(args.squares.data), args.squares.size(),
             static_cast<const double*>(args.also_finite.data), args.also_finite.size(),
             static_cast<ClipState*>(args.state.data), static_cast<double*>(args.kept.data), args.max_norm);
}

}  // namespace ashlar::ASHLAR_DEV
