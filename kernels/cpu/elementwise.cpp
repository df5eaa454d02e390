// Residual additions with dropout, copies, fills and random weights.
// Memory-bound: a residual addition moves 3 or 4 storage elements per element for 1 or 2 flops; dropout adds a quarter
// of a Philox block (about 3 to 5 vector instructions per word). Random normals are bound by log, sine and cosine in
// double. Threads process contiguous rows or pieces.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/philox_inl.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/fused_rows.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_ELEMENTWISE_ONCE
#define ASHLAR_KERNELS_CPU_ELEMENTWISE_ONCE
namespace ashlar::cpu {

constexpr int64_t kTile = 1024;             // number of elements whose random words are generated at once
constexpr int64_t kTileWords = kTile + 64;  // more words, for partial Philox blocks and vectors at both ends

}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Keeps an element iff uniform(word) >= p, which is exactly (word >> 8) >= ceil(p * 2^24).
class Dropout {
 public:
  explicit Dropout(const DropoutArgs& a)
      : args_(a),
        step_(a.active() ? a.step() : 0),
        threshold_(static_cast<int32_t>(std::ceil(a.p * 0x1p24))),
        scale_(1.0 / (1.0 - a.p)) {}

  /// Returns the global dropout index of element (n, 0) of a local tensor with `cols` columns.
  uint64_t row_start(int64_t n, int64_t cols) const {
    return (static_cast<uint64_t>(args_.first_sample) * static_cast<uint64_t>(args_.sequence_length) +
            static_cast<uint64_t>(args_.row0) + static_cast<uint64_t>(n)) *
           static_cast<uint64_t>(cols);
  }

  /// Computes the random words of elements e to e + count - 1 (count <= kTile) in `buffer`. Returns the address of the
  /// word of element e.
  HWY_INLINE const uint32_t* words(uint64_t e, int64_t count, uint32_t* buffer) const {
    const uint64_t first = e / 4;
    const uint64_t last = (e + static_cast<uint64_t>(count) + 3) / 4;
    philox_words(first, static_cast<int64_t>(last - first), args_.rng_stream, step_, args_.seed, buffer);
    return buffer + e % 4;
  }

  /// Returns v * mask / (1 - p). `word` points to the random words of v's elements, which give the mask.
  template <class D, class Part>
  HWY_INLINE VecOf<D> apply(D d, VecOf<D> v, const uint32_t* word, Part part) const {
    using A = hn::TFromD<D>;
    const hn::Rebind<uint32_t, D> du;
    const hn::Rebind<int32_t, D> di;
    const auto upper = hn::BitCast(di, hn::ShiftRight<8>(load_words(du, word, part)));
    const auto scaled = hn::Mul(v, hn::Set(d, static_cast<A>(scale_)));
    if constexpr (sizeof(A) == 4) {
      return hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(upper, hn::Set(di, threshold_))), scaled);
    } else {
      const hn::Rebind<int64_t, D> dl;
      const auto wide = hn::PromoteTo(dl, upper);
      return hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(wide, hn::Set(dl, threshold_))), scaled);
    }
  }

 private:
  template <class DU>
  static HWY_INLINE VecOf<DU> load_words(DU du, const uint32_t* word, Whole) {
    return hn::LoadU(du, word);
  }
  template <class DU>
  static HWY_INLINE VecOf<DU> load_words(DU du, const uint32_t* word, First part) {
    return load(du, word, part);
  }

  const DropoutArgs& args_;
  uint32_t step_;
  int32_t threshold_;
  double scale_;
};

template <typename T>
void residual_rows(const ResidualForward& a, Dropout first, Dropout second, int64_t row_begin, int64_t row_end) {
  const TagOf<T> d;
  const int64_t cols = a.delta.cols;
  const bool drop1 = a.dropout.active();
  const bool drop2 = a.delta2 && a.dropout2.active();
  const auto scale = hn::Set(d, static_cast<hn::TFromD<TagOf<T>>>(a.scale));
  alignas(64) uint32_t buffer1[kTileWords];
  alignas(64) uint32_t buffer2[kTileWords];
  for (int64_t n = row_begin; n < row_end; ++n) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      const int64_t count = std::min(kTile, cols - c0);
      const T* x = a.x ? row_of<T>(a.x, n) + c0 : nullptr;
      const T* delta = row_of<T>(a.delta, n) + c0;
      const T* delta2 = a.delta2 ? row_of<T>(a.delta2, n) + c0 : nullptr;
      T* y = row_of<T>(a.y, n) + c0;
      const uint64_t e = first.row_start(n, cols) + static_cast<uint64_t>(c0);
      const uint64_t e2 = second.row_start(n, cols) + static_cast<uint64_t>(c0);
      const uint32_t* word1 = drop1 ? first.words(e, count, buffer1) : nullptr;
      const uint32_t* word2 = drop2 ? second.words(e2, count, buffer2) : nullptr;
      for_lanes(d, count, [&](int64_t c, auto part) ASHLAR_SIMD {
        auto v = load(d, delta + c, part);
        if (word1 != nullptr) v = first.apply(d, v, word1 + c, part);
        v = x != nullptr ? hn::MulAdd(v, scale, load(d, x + c, part)) : hn::Mul(v, scale);
        if (delta2 != nullptr) {
          auto v2 = load(d, delta2 + c, part);
          if (word2 != nullptr) v2 = second.apply(d, v2, word2 + c, part);
          v = hn::MulAdd(v2, scale, v);
        }
        store(d, v, y + c, part);
      });
    }
  }
}

void residual_forward_range(const ResidualForward& a, int64_t begin, int64_t end) {
  const Dropout first(a.dropout);
  const Dropout second(a.dropout2);
  with_storage("residual_forward", a.delta.dtype,
               [&](auto t) { residual_rows<decltype(t)>(a, first, second, begin, end); });
}

void residual_forward_impl(const ResidualForward& a, Threads& threads) {
  parallel_for(threads, a.delta.rows, rows_grain(a.delta.cols, kCheapGrain),
               [&](int64_t begin, int64_t end) { residual_forward_range(a, begin, end); });
}

void dropout_backward_impl(const DropoutBackward& a, Threads& threads) {
  with_storage("dropout_backward", a.dy.dtype, [&](auto t) {
    using T = decltype(t);
    const TagOf<T> d;
    const int64_t cols = a.dy.cols;
    const bool accumulate = a.mode == GradMode::kAccumulate;
    const Dropout dropout(a.dropout);
    const auto scale = static_cast<hn::TFromD<TagOf<T>>>(a.scale);
    for_rows(threads, a.dy, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      alignas(64) uint32_t buffer[kTileWords];
      for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
        const int64_t count = std::min(kTile, cols - c0);
        const T* dy = row_of<T>(a.dy, n) + c0;
        T* out = row_of<T>(a.ddelta, n) + c0;
        const uint64_t e = dropout.row_start(n, cols) + static_cast<uint64_t>(c0);
        const uint32_t* word = a.dropout.active() ? dropout.words(e, count, buffer) : nullptr;
        for_lanes(d, count, [&](int64_t c, auto part) ASHLAR_SIMD {
          auto v = load(d, dy + c, part);
          if (word != nullptr) v = dropout.apply(d, v, word + c, part);
          const auto scale_v = hn::Set(d, scale);
          v = accumulate ? hn::MulAdd(v, scale_v, load(d, out + c, part)) : hn::Mul(v, scale_v);
          store(d, v, out + c, part);
        });
      }
    });
  });
}

/// y = min(max(x, -limit), limit); comparisons with NaN fail, so NaN is kept.
void clamp_impl(const Clamp& a, Threads& threads) {
  with_storage("clamp", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const TagOf<T> d;
    const auto high = hn::Set(d, static_cast<hn::TFromD<TagOf<T>>>(a.limit)), low = hn::Neg(high);
    for_row_pieces(threads, {a.x, a.y}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
      const T* x = row_of<T>(a.x, n) + c;
      T* y = row_of<T>(a.y, n) + c;
      for_lanes(d, count, [&](int64_t i, auto part) ASHLAR_SIMD {
        auto v = load(d, x + i, part);
        v = hn::IfThenElse(hn::Gt(v, high), high, v);
        store(d, hn::IfThenElse(hn::Lt(v, low), low, v), y + i, part);
      });
    });
  });
}

void clamp_backward_impl(const ClampBackward& a, Threads& threads) {
  with_storage("clamp_backward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const TagOf<T> d;
    const auto limit = hn::Set(d, static_cast<hn::TFromD<TagOf<T>>>(a.limit));
    const bool accumulate = a.mode == GradMode::kAccumulate;
    for_row_pieces(threads, {a.x, a.dy, a.dx}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
      const T* x = row_of<T>(a.x, n) + c;
      const T* dy = row_of<T>(a.dy, n) + c;
      T* dx = row_of<T>(a.dx, n) + c;
      for_lanes(d, count, [&](int64_t i, auto part) ASHLAR_SIMD {
        const auto inside = hn::Le(hn::Abs(load(d, x + i, part)), limit);
        auto v = hn::IfThenElseZero(inside, load(d, dy + i, part));
        if (accumulate) v = hn::Add(load(d, dx + i, part), v);
        store(d, v, dx + i, part);
      });
    });
  });
}

/// dst = src, or dst += src with `accumulate`. Both types have the same accumulate type: fp32 and bf16, or fp64.
template <typename S, typename T>
HWY_INLINE void copy_piece(const S* src, T* dst, bool accumulate, int64_t count) {
  const TagOf<T> d;
  for_lanes(d, count, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto v = load(d, src + c, part);
    if (accumulate) v = hn::Add(load(d, dst + c, part), v);
    store(d, v, dst + c, part);
  });
}

void copy_impl(const Copy& a, Threads& threads) {
  const bool accumulate = a.mode == GradMode::kAccumulate;
  with_storage("copy", a.src.dtype, [&](auto s) {
    with_storage("copy", a.dst.dtype, [&](auto t) {
      using S = decltype(s);
      using T = decltype(t);
      for_row_pieces(threads, {a.src, a.dst}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
        const S* src = row_of<S>(a.src, n) + c;
        T* dst = row_of<T>(a.dst, n) + c;
        if constexpr (std::is_same_v<hn::TFromD<TagOf<S>>, hn::TFromD<TagOf<T>>>) {
          copy_piece(src, dst, accumulate, count);
        } else {
          for (int64_t i = 0; i < count; ++i)
            store_rounded(accumulate ? widen(dst[i]) + widen(src[i]) : widen(src[i]), dst + i);
        }
      });
    });
  });
}

/// Converts the words of whole Philox blocks to standard normals in double, as Philox::normal_at does.
HWY_INLINE void normals(const uint32_t* words, int64_t num_words, double* out) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<int64_t, decltype(d)> di;
  const hn::Rebind<uint64_t, decltype(d)> du;
  const auto half = hn::Set(d, 0.5);
  const auto to_unit = hn::Set(d, 0x1p-32);
  const auto low = hn::Set(du, 0xFFFFFFFFU);
  for (int64_t i = 0; i < num_words; i += 2 * kLanesOf<decltype(d)>) {
    const auto pairs = hn::LoadU(du, reinterpret_cast<const uint64_t*>(words + i));
    const auto a = hn::ConvertTo(d, hn::BitCast(di, hn::And(pairs, low)));
    const auto b = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<32>(pairs)));
    const auto u = hn::Mul(hn::Add(a, half), to_unit);
    const auto v = hn::Mul(hn::Add(b, half), to_unit);
    const auto r = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, u)));
    const auto angle = hn::Mul(hn::Set(d, 2.0 * std::numbers::pi), v);
    hn::StoreInterleaved2(hn::Mul(r, hn::Cos(d, angle)), hn::Mul(r, hn::Sin(d, angle)), d, out + i);
  }
}

template <typename T>
void random_piece(const RandomFill& a, uint64_t index, int64_t count, T* dst) {
  alignas(64) uint32_t words[kTileWords];
  alignas(64) double values[kTileWords];
  while (count > 0) {
    const int64_t skip = static_cast<int64_t>(index % 4);
    const int64_t take = std::min(count, kTile - skip);
    const int64_t blocks = (skip + take + 3) / 4;
    philox_words(index / 4, blocks, static_cast<uint32_t>(a.rng_stream), static_cast<uint32_t>(a.rng_stream >> 32),
                 a.seed, words);
    normals(words, 4 * blocks, values);
    for (int64_t i = skip; a.trunc_sigma > 0 && i < skip + take; ++i) {
      if (std::abs(values[i]) <= a.trunc_sigma) continue;
      const uint64_t at = index + static_cast<uint64_t>(i - skip);
      values[i] = Philox::truncated_normal_at(a.seed, a.rng_stream + Philox::kNextDraw, at, a.trunc_sigma);
    }
    if constexpr (std::is_same_v<T, float>) {
      const hn::ScalableTag<double> d;
      const hn::Rebind<float, decltype(d)> df;
      const auto scale = hn::Set(d, a.scale);
      for_lanes(d, take, [&](int64_t c, auto part) ASHLAR_SIMD {
        store(df, hn::DemoteTo(df, hn::Mul(load(d, values + skip + c, part), scale)), dst + c, part);
      });
    } else {
      for (int64_t i = 0; i < take; ++i) store_rounded(values[skip + i] * a.scale, dst + i);
    }
    index += static_cast<uint64_t>(take);
    dst += take;
    count -= take;
  }
}

void random_fill_impl(const RandomFill& a, Threads& threads) {
  // If the rows are adjacent in the global tensor too, they are processed as one long row.
  const ConstView in_global{.rows = a.dst.rows, .cols = a.dst.cols, .stride = a.global_cols};
  with_storage("random_fill", a.dst.dtype, [&](auto t) {
    using T = decltype(t);
    for_row_pieces(threads, {a.dst, in_global}, kExpensiveGrain, [&](int64_t n, int64_t c, int64_t count) {
      const uint64_t index = static_cast<uint64_t>((a.row_begin + n) * a.global_cols + a.col_begin + c);
      random_piece<T>(a, index, count, row_of<T>(a.dst, n) + c);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
namespace {

template <typename T>
void fill_rows(const MutView& dst, T value, Threads& threads) {
  // Copies in small blocks, since the compiler's loop over single elements is several times slower.
  constexpr int64_t kBlock = 256;
  T block[kBlock];
  std::fill_n(block, kBlock, value);
  for_row_pieces(threads, {dst}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
    T* out = row_of<T>(dst, n) + c;
    for (int64_t i = 0; i < count; i += kBlock) {
      std::memcpy(static_cast<void*>(out + i), block, static_cast<size_t>(std::min(kBlock, count - i)) * sizeof(T));
    }
  });
}

}  // namespace

ResidualRows residual_forward_rows(Isa isa) { return ASHLAR_FOR_ISA(isa, residual_forward_range); }

ASHLAR_LAUNCH_FOR_ISA(ResidualForward, residual_forward_impl)
ASHLAR_LAUNCH_FOR_ISA(DropoutBackward, dropout_backward_impl)
ASHLAR_LAUNCH_FOR_ISA(Clamp, clamp_impl)
ASHLAR_LAUNCH_FOR_ISA(ClampBackward, clamp_backward_impl)

void CpuBackend::launch(const Copy& args, Stream&) {
  if (args.src.dtype == args.dst.dtype && args.mode == GradMode::kOverwrite) {
    const int64_t size = size_of(args.src.dtype);
    for_row_pieces(threads_, {args.src, args.dst}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
      std::memmove(static_cast<char*>(args.dst.data) + (n * args.dst.stride + c) * size,
                   static_cast<const char*>(args.src.data) + (n * args.src.stride + c) * size,
                   static_cast<size_t>(count * size));
    });
    return;
  }
  ASHLAR_FOR_ISA(info_.isa, copy_impl)(args, threads_);
}

void CpuBackend::launch(const Fill& args, Stream&) {
  switch (args.dst.dtype) {
    case DType::kFloat32: return fill_rows(args.dst, static_cast<float>(args.value), threads_);
    case DType::kFloat64: return fill_rows(args.dst, args.value, threads_);
    case DType::kBFloat16: {
      BF16 value;
      store_rounded(args.value, &value);
      return fill_rows(args.dst, value, threads_);
    }
    case DType::kInt32: return fill_rows(args.dst, static_cast<int32_t>(args.value), threads_);
    case DType::kInt64: return fill_rows(args.dst, static_cast<int64_t>(args.value), threads_);
    case DType::kUInt8: return fill_rows(args.dst, static_cast<uint8_t>(args.value), threads_);
  }
}

void CpuBackend::launch(const SetStruct& args, Stream&) {
  std::memcpy(args.dst.data, args.bytes.data(), static_cast<size_t>(args.size));
}

ASHLAR_LAUNCH_FOR_ISA(RandomFill, random_fill_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
