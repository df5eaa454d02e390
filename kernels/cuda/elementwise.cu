// Residual additions with dropout, copies, fills and random weights.
// Memory-bound: a residual addition moves 3 or 4 storage elements per element for 1 or 2 flops; dropout adds a quarter
// of a Philox block per element (about 25 integer instructions). Random normals are bound by log, sine and cosine in
// double. Rows (a contiguous matrix is one long row) are split into vectors; a thread processes several.

#include "core/backend/elementwise.h"

#include <cstring>
#include <numbers>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/residual_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// y = x + scale * dropout(delta) [+ scale * dropout2(delta2)].
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads) residual_forward_kernel(Pieces pieces, ResidualRows<T> a) {
  constexpr int W = kWidth<T>;
  const DropoutMask first(a.dropout), second(a.dropout2);
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const auto read = [&](const T* from) { return load_some<W>(from, count, pieces.vector); };
    store_some(a.y[row] + c, residual_sum<T, W>(a, first, second, row, c, read), count, pieces.vector);
  });
}

/// ddelta (+)= scale * dy * mask / (1 - p).
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    dropout_backward_kernel(Pieces pieces, Rows<const T> dy, Rows<T> ddelta, Dropout dropout, int64_t cols,
                            AccumulateOf<T> scale, bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  const DropoutMask mask(dropout);
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(dy[row] + c, count, pieces.vector), values);
    drop(mask, row, cols, c, values);
    Vec<T, W> old{};
    if (accumulate) old = load_some<W>(ddelta[row] + c, count, pieces.vector);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] = fused(values[i], scale, static_cast<A>(old.wide(i)));
    store_some(ddelta[row] + c, narrow<T>(values), count, pieces.vector);
  });
}

/// y = min(max(x, -limit), limit); comparisons with NaN fail, so NaN is kept.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    clamp_kernel(Pieces pieces, Rows<const T> x, Rows<T> y, AccumulateOf<T> limit) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(x[row] + c, count, pieces.vector), values);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] = values[i] > limit ? limit : values[i] < -limit ? -limit : values[i];
    store_some(y[row] + c, narrow<T>(values), count, pieces.vector);
  });
}

/// dx (+)= dy where -limit <= x <= limit, 0 elsewhere.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    clamp_backward_kernel(Pieces pieces, Rows<const T> dy, Rows<const T> x, Rows<T> dx, AccumulateOf<T> limit,
                          bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(dy[row] + c, count, pieces.vector), values);
    const Vec<T, W> of = load_some<W>(x[row] + c, count, pieces.vector);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] = of.wide(i) <= limit && of.wide(i) >= -limit ? values[i] : A{0};
    if (accumulate) {
      const Vec<T, W> old = load_some<W>(dx[row] + c, count, pieces.vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) values[i] += old.wide(i);
    }
    store_some(dx[row] + c, narrow<T>(values), count, pieces.vector);
  });
}

/// dst (+)= src, computed in a type that represents the numbers of both dtypes.
template <typename S, typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    copy_kernel(Pieces pieces, Rows<const S> src, Rows<T> dst, bool accumulate) {
  using A = AccumulateOf<S, T>;
  constexpr int W = kWidth<S, T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(src[row] + c, count, pieces.vector), values);
    if (accumulate) {
      const Vec<T, W> old = load_some<W>(dst[row] + c, count, pieces.vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) values[i] += old.wide(i);
    }
    store_some(dst[row] + c, narrow<T>(values), count, pieces.vector);
  });
}

/// dst = src for elements of the size of T, whose bits are copied.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads) move_kernel(Pieces pieces, Rows<const T> src, Rows<T> dst) {
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    store_some(dst[row] + c, load_some<W>(src[row] + c, count, pieces.vector), count, pieces.vector);
  });
}

template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads) fill_kernel(Pieces pieces, Rows<T> dst, T value) {
  constexpr int W = kWidth<T>;
  Vec<T, W> values;
  for (int i = 0; i < W; ++i) values.v[i] = value;
  for_each_vector<W>(pieces,
                     [&](int64_t row, int c, int count) { store_some(dst[row] + c, values, count, pieces.vector); });
}

/// Philox::normal_pair on the device.
__device__ __forceinline__ void normal_pair(uint32_t a, uint32_t b, double& first, double& second) {
  const double u = (static_cast<double>(a) + 0.5) * 0x1p-32;
  const double v = (static_cast<double>(b) + 0.5) * 0x1p-32;
  const double r = sqrt(-2.0 * logarithm(u));
  double cosine, sine;
  cosine_and_sine(2.0 * std::numbers::pi * v, cosine, sine);
  first = r * cosine;
  second = r * sine;
}

struct RandomRows {
  double scale, trunc_sigma;
  uint64_t seed, rng_stream;
  int64_t row_begin, col_begin, global_cols;
};

/// Replaces each number beyond trunc_sigma by the first later draw within trunc_sigma: Philox::truncated_normal_at on
/// the device.
__device__ __forceinline__ void draw_again(const RandomRows& a, uint64_t block, double (&normals)[4]) {
  uint64_t rng_stream = a.rng_stream;
  const auto beyond = [&](double value) { return fabs(value) > a.trunc_sigma; };
  while (beyond(normals[0]) || beyond(normals[1]) || beyond(normals[2]) || beyond(normals[3])) {
    rng_stream += Philox::kNextDraw;
    const Philox::Counter words = Philox::block(a.seed, rng_stream, block);
    double next[4];
    normal_pair(words[0], words[1], next[0], next[1]);
    normal_pair(words[2], words[3], next[2], next[3]);
    ASHLAR_UNROLL
    for (int i = 0; i < 4; ++i) normals[i] = beyond(normals[i]) ? next[i] : normals[i];
  }
}

/// A thread generates the four numbers of a Philox block. A Philox block begins where the global index of an element is
/// a multiple of four, so that only a part of the first and of the last Philox block of a row may be used.
template <typename T, bool kTruncated>
__global__ void __launch_bounds__(Pieces::kThreads)
    random_fill_kernel(RandomRows a, Rows<T> dst, int64_t rows, int64_t cols, int64_t blocks_a_row) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < rows * blocks_a_row; item += step) {
    const int64_t row = item / blocks_a_row;
    const auto start = static_cast<uint64_t>((a.row_begin + row) * a.global_cols + a.col_begin);
    const uint64_t block = start / 4 + static_cast<uint64_t>(item % blocks_a_row);
    const Philox::Counter words = Philox::block(a.seed, a.rng_stream, block);
    double normals[4];
    normal_pair(words[0], words[1], normals[0], normals[1]);
    normal_pair(words[2], words[3], normals[2], normals[3]);
    if constexpr (kTruncated) draw_again(a, block, normals);
    const int64_t c = static_cast<int64_t>(4 * block - start);
    T* const out = dst[row] + c;
    double scaled[4];
    ASHLAR_UNROLL
    for (int i = 0; i < 4; ++i) scaled[i] = normals[i] * a.scale;
    constexpr uintptr_t kAligned = alignof(Vec<T, 4>);
    if (c >= 0 && c + 4 <= cols && reinterpret_cast<uintptr_t>(out) % kAligned == 0) {
      store(out, narrow<T>(scaled));
      continue;
    }
    ASHLAR_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (c + i >= 0 && c + i < cols) out[i] = narrow<T>(scaled[i]);
    }
  }
}

/// The bytes of SetStruct, passed as a kernel argument.
struct StructBytes {
  uint64_t word[SetStruct::kMaxBytes / 8];
};
__global__ void set_struct_kernel(uint8_t* dst, StructBytes bytes, int64_t size) {
  ASHLAR_UNROLL
  for (int i = 0; i < SetStruct::kMaxBytes; ++i) {
    const auto byte = static_cast<uint8_t>(bytes.word[i / 8] >> (i % 8 * 8));
    if (i == static_cast<int>(threadIdx.x) && i < size) dst[i] = byte;
  }
}

/// Calls f(T()), where T is the unsigned integer type of the dtype's size.
template <typename F>
void with_size_of(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    default: return f(uint64_t());
  }
}

template <typename T>
void fill_with(const MutView& dst, T value, Stream& stream) {
  const Pieces pieces = split_pieces(false, kWidth<T>, dst);
  run_kernel(stream, {.name = "fill", .grid = pieces.blocks(), .block = Pieces::kThreads}, fill_kernel<T>, pieces,
             pieces.of<T>(dst), value);
}

}  // namespace

void CudaBackend::launch(const ResidualForward& args, Stream& stream) {
  if (args.delta.size() == 0) return;
  with_storage("residual_forward", args.delta.dtype, [&](auto t) {
    using T = decltype(t);
    const bool drops = args.dropout.active() || (args.delta2 && args.dropout2.active());
    const Pieces pieces = split_pieces(drops, kWidth<T>, args.delta, args.x, args.delta2, args.y);
    run_kernel(stream, {.name = "residual_forward", .grid = pieces.blocks(), .block = Pieces::kThreads},
               residual_forward_kernel<T>, pieces,
               residual_rows<T>(args, [&](const auto& view) { return pieces.of<T>(view); }));
  });
}

void CudaBackend::launch(const DropoutBackward& args, Stream& stream) {
  if (args.dy.size() == 0) return;
  with_storage("dropout_backward", args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    const Pieces pieces = split_pieces(args.dropout.active(), kWidth<T>, args.dy, args.ddelta);
    run_kernel(stream, {.name = "dropout_backward", .grid = pieces.blocks(), .block = Pieces::kThreads},
               dropout_backward_kernel<T>, pieces, pieces.of<T>(args.dy), pieces.of<T>(args.ddelta),
               dropout_of(args.dropout), args.dy.cols, static_cast<AccumulateOf<T>>(args.scale),
               args.mode == GradMode::kAccumulate);
  });
}

void CudaBackend::launch(const Clamp& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("clamp", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const Pieces pieces = split_pieces(false, kWidth<T>, args.x, args.y);
    run_kernel(stream, {.name = "clamp", .grid = pieces.blocks(), .block = Pieces::kThreads}, clamp_kernel<T>, pieces,
               pieces.of<T>(args.x), pieces.of<T>(args.y), static_cast<AccumulateOf<T>>(args.limit));
  });
}

void CudaBackend::launch(const ClampBackward& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("clamp_backward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const Pieces pieces = split_pieces(false, kWidth<T>, args.dy, args.x, args.dx);
    run_kernel(stream, {.name = "clamp_backward", .grid = pieces.blocks(), .block = Pieces::kThreads},
               clamp_backward_kernel<T>, pieces, pieces.of<T>(args.dy), pieces.of<T>(args.x), pieces.of<T>(args.dx),
               static_cast<AccumulateOf<T>>(args.limit), args.mode == GradMode::kAccumulate);
  });
}

void CudaBackend::launch(const Copy& args, Stream& stream) {
  if (args.src.size() == 0) return;
  if (args.src.dtype == args.dst.dtype && args.mode == GradMode::kOverwrite) {
    with_size_of(args.src.dtype, [&](auto t) {
      using T = decltype(t);
      const Pieces pieces = split_pieces(false, kWidth<T>, args.src, args.dst);
      run_kernel(stream, {.name = "copy", .grid = pieces.blocks(), .block = Pieces::kThreads}, move_kernel<T>, pieces,
                 pieces.of<T>(args.src), pieces.of<T>(args.dst));
    });
    return;
  }
  with_storage("copy", args.src.dtype, [&](auto s) {
    with_storage("copy", args.dst.dtype, [&](auto t) {
      using S = decltype(s);
      using T = decltype(t);
      const Pieces pieces = split_pieces(false, kWidth<S, T>, args.src, args.dst);
      run_kernel(stream, {.name = "copy", .grid = pieces.blocks(), .block = Pieces::kThreads}, copy_kernel<S, T>,
                 pieces, pieces.of<S>(args.src), pieces.of<T>(args.dst), args.mode == GradMode::kAccumulate);
    });
  });
}

void CudaBackend::launch(const Fill& args, Stream& stream) {
  if (args.dst.size() == 0) return;
  switch (args.dst.dtype) {
    case DType::kFloat32: return fill_with(args.dst, std::bit_cast<uint32_t>(static_cast<float>(args.value)), stream);
    case DType::kFloat64: return fill_with(args.dst, std::bit_cast<uint64_t>(args.value), stream);
    case DType::kBFloat16: return fill_with(args.dst, narrow<BF16>(args.value).bits, stream);
    case DType::kInt32: return fill_with(args.dst, static_cast<uint32_t>(static_cast<int32_t>(args.value)), stream);
    case DType::kInt64: return fill_with(args.dst, static_cast<uint64_t>(static_cast<int64_t>(args.value)), stream);
    case DType::kUInt8: return fill_with(args.dst, static_cast<uint8_t>(args.value), stream);
  }
}

void CudaBackend::launch(const RandomFill& args, Stream& stream) {
  if (args.dst.size() == 0) return;
  with_storage("random_fill", args.dst.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t rows = args.dst.rows, cols = args.dst.cols;
    // A row that begins in the middle of a Philox block may need one more Philox block.
    const bool whole = args.global_cols % 4 == 0 && args.col_begin % 4 == 0;
    const int64_t blocks_a_row = div_up(whole ? cols : cols + 3, 4);
    run_kernel(stream,
               {.name = "random_fill",
                .grid = num_blocks(div_up(rows * blocks_a_row, Pieces::kThreads), 16 * kMultiprocessors),
                .block = Pieces::kThreads},
               args.trunc_sigma > 0 ? random_fill_kernel<T, true> : random_fill_kernel<T, false>,
               RandomRows{.scale = args.scale,
                          .trunc_sigma = args.trunc_sigma,
                          .seed = args.seed,
                          .rng_stream = args.rng_stream,
                          .row_begin = args.row_begin,
                          .col_begin = args.col_begin,
                          .global_cols = args.global_cols},
               rows_of<T>(args.dst), rows, cols, blocks_a_row);
  });
}

void CudaBackend::launch(const SetStruct& args, Stream& stream) {
  if (args.size == 0) return;
  StructBytes bytes{};
  std::memcpy(&bytes, args.bytes.data(), static_cast<size_t>(args.size));
  run_kernel(stream, {.name = "set_struct", .grid = 1U, .block = 64U}, set_struct_kernel,
             static_cast<uint8_t*>(args.dst.data), bytes, args.size);
}

}  // namespace ashlar::ASHLAR_DEV
