#include "kernels/cpu/gemm/tile_kernels.h"

#include <array>
#include <numeric>
#include <utility>

#include "kernels/cpu/dispatch.h"

// Packing and tile kernels in Highway, compiled once for each instruction set. A tile is tile_rows x 2 vectors of
// accumulators that stay in registers. A step of k takes 2 vector loads of `b`, one broadcast of `a` per row,
// and 2*tile_rows FMAs.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/tile_kernels.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 12;  // the sums of a tile use 24 of 32 registers
#else
constexpr int kTileRows = 6;  // the sums of a tile use 12 of 16 registers
#endif

template <typename T>
int lanes_of() {
  return static_cast<int>(hn::Lanes(hn::ScalableTag<T>()));
}

// Computes one tile. If `a` is packed, the elements of its rows at one k are adjacent in a panel. If `a` is read in
// place, its rows are a_stride bytes apart. Then every third row has a pointer in the array a[], and the two rows after
// it are addressed as offsets a_stride and 2*a_stride from this pointer.
template <typename T, int kRows, int kVectors, bool kInPlace>
HWY_ATTR void tile(const TileArgs<T>& args) {
  constexpr int kBases = kInPlace ? (kRows + 2) / 3 : 1;
  constexpr int kPerBase = kInPlace ? 3 : kRows;
  const hn::ScalableTag<T> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t a_row = kInPlace ? args.a_stride : int64_t{sizeof(T)};
  const int64_t a_step = kInPlace ? int64_t{sizeof(T)} : int64_t{kRows * sizeof(T)};
  const char* HWY_RESTRICT a[kBases];
  a[0] = static_cast<const char*>(args.a);
#pragma GCC unroll 16
  for (int i = 1; i < kBases; ++i) a[i] = a[i - 1] + kPerBase * a_row;
  const T* HWY_RESTRICT b = static_cast<const T*>(args.b);
  const char* prefetch = static_cast<const char*>(args.prefetch);
  prefetch_result<kRows, kVectors>(args, lanes);
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t p = 0; p < args.groups; ++p) {
    Vec bv[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) bv[v] = hn::Load(d, b + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec av = hn::Set(d, *reinterpret_cast<const T*>(a[r / kPerBase] + r % kPerBase * a_row));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kBases; ++i) a[i] += a_step;
    b += kVectors * lanes;
    __builtin_prefetch(prefetch, 0, 2);
    prefetch += args.prefetch_step;
  }
  if (const T* add = args.add; add != nullptr) {
    const int64_t ld_add = args.ld_add;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r, add += ld_add) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Add(sum[r][v], hn::LoadU(d, add + v * lanes));
    }
  }
  T* out = args.out;
  const int64_t ld_out = args.ld_out;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, out += ld_out) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + v * lanes);
  }
}

template <typename T, bool kInPlace>
void run_tile(int rows, int vectors, const TileArgs<T>& args) {
  using Fn = void (*)(const TileArgs<T>&);
  static constexpr auto kTable = []<size_t... kR>(std::index_sequence<kR...>) {
    return std::array<std::array<Fn, 2>, sizeof...(kR)>{std::array<Fn, 2>{
        &tile<T, static_cast<int>(kR) + 1, 1, kInPlace>, &tile<T, static_cast<int>(kR) + 1, 2, kInPlace>}...};
  }
  (std::make_index_sequence<kTileRows>());
  kTable[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)](args);
}

// Packs one row of a panel: by wide vectors, then by four lanes at a time; the last four overlap earlier ones.
template <typename Src, typename T>
HWY_INLINE void pack_row(const Src* HWY_RESTRICT src, int64_t width, T* HWY_RESTRICT dst) {
  int64_t i = 0;
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 8> d8;
  const hn::CappedTag<T, 4> d4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t lanes8 = static_cast<int64_t>(hn::Lanes(d8));
  const int64_t lanes4 = static_cast<int64_t>(hn::Lanes(d4));
  for (; i + lanes <= width; i += lanes) hn::StoreU(load(d, src + i), d, dst + i);
  if (i + lanes8 <= width) {
    hn::StoreU(load(d8, src + i), d8, dst + i);
    i += lanes8;
  }
  for (; i + lanes4 <= width; i += lanes4) hn::StoreU(load(d4, src + i), d4, dst + i);
  if (i < width && width >= lanes4) {
    i = width - lanes4;
    hn::StoreU(load(d4, src + i), d4, dst + i);
    return;
  }
  for (; i < width; ++i) dst[i] = static_cast<T>(src[i]);
}

// Number of rows that are copied to one panel before the copy goes on to the next panel. The source is read along its
// rows, and this many rows of a panel of any width fill whole cache lines.
constexpr int64_t kRowBlock = 16;

// A row operation for copy_rows: converts each source element to one panel element.
template <typename Src, typename T>
struct CopyRow {
  using Source = Src;
  using Element = T;
  static constexpr int64_t kGroup = 1;
  static HWY_INLINE void apply(const Src* src, int64_t, int64_t width, T* dst) { pack_row(src, width, dst); }
};

// Copies `rows` rows of a panel. The most common widths are compile-time constants; with kWidth = 0 the width is
// any_width.
template <class Row, int64_t kWidth>
HWY_ATTR void copy_rows(const typename Row::Source* src, int64_t stride, int64_t any_width, int64_t padded,
                        typename Row::Element* dst, int64_t rows) {
  const int64_t width = kWidth > 0 ? kWidth : any_width;
  if constexpr (kWidth > 0) padded = kWidth;
  for (; rows > 0; --rows, src += Row::kGroup * stride, dst += padded) {
    // Prefetches the same columns of the next kRowBlock rows, which are copied after the other panels.
    for (int64_t i = 0; i < Row::kGroup; ++i) hwy::Prefetch(src + (kRowBlock * Row::kGroup + i) * stride);
    Row::apply(src, stride, width, dst);
    for (int64_t i = width; i < padded; ++i) dst[i] = 0;
  }
}

// Calls f(first element, width, padded width) for each panel.
template <typename F>
HWY_INLINE void for_panels(const PackArgs& args, const F& f) {
  int64_t first = 0;
  for (int64_t panel = 0; panel < args.panels; ++panel) {
    const int64_t width = panel < args.wide_panels ? args.width : args.rest_width;
    f(first, width, (width + args.pad_to - 1) / args.pad_to * args.pad_to);
    first += width;
  }
}

// Packs panels whose source rows are contiguous (k is the strided dimension). Packs only full groups of kGroup elements
// along k; the caller packs the remainder.
template <class Row>
HWY_ATTR void pack_rows(const PackArgs& args) {
  using T = typename Row::Element;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  const auto* src = static_cast<const typename Row::Source*>(args.src);
  T* dst = static_cast<T*>(args.dst);
  const int64_t whole_groups = args.k / Row::kGroup;
  const int64_t groups = (args.k + Row::kGroup - 1) / Row::kGroup;
  for (int64_t p = 0; p < whole_groups; p += kRowBlock) {
    const int64_t rows = p + kRowBlock < whole_groups ? kRowBlock : whole_groups - p;
    for_panels(args, [&](int64_t first, int64_t width, int64_t padded) {
      auto copy = &copy_rows<Row, 0>;
      if (width == padded) {
        switch (width) {
          case 2 * kLanes: copy = &copy_rows<Row, 2 * kLanes>; break;
          case kTileRows: copy = &copy_rows<Row, kTileRows>; break;
          case kTileRows - 1: copy = &copy_rows<Row, kTileRows - 1>; break;
          default: break;
        }
      }
      copy(src + p * Row::kGroup * args.stride + first, args.stride, width, padded, dst + first * groups + p * padded,
           rows);
    });
  }
}

// Writes a 4 x 4 block of the source, transposed.
template <typename Src, typename T>
HWY_INLINE void transpose_block(const Src* src, int64_t stride, T* dst, int64_t width) {
  if constexpr (sizeof(T) == 4) {
    const hn::FixedTag<T, 4> d;
    const hn::FixedTag<uint64_t, 2> d64;
    const auto r0 = load(d, src);
    const auto r1 = load(d, src + stride);
    const auto r2 = load(d, src + 2 * stride);
    const auto r3 = load(d, src + 3 * stride);
    const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23)), d, dst);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23)), d, dst + width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23)), d, dst + 2 * width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23)), d, dst + 3 * width);
  } else {
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < 4; ++i) dst[p * width + i] = static_cast<T>(src[i * stride + p]);
    }
  }
}

// Writes a block of 4 x `k` elements of the source, transposed; k is a multiple of 4.
template <typename Src, typename T>
HWY_INLINE void transpose_rows(const Src* src, int64_t stride, int64_t k, T* dst, int64_t width) {
  for (int64_t p = 0; p < k; p += 4) transpose_block(src + p, stride, dst + p * width, width);
}

// Packs one panel whose elements along k are adjacent in the source. The elements of a panel row (one k) are `stride`
// apart in the source.
template <typename Src, typename T>
HWY_ATTR void transpose_panel(const Src* src, int64_t stride, int64_t k, int64_t width, int64_t padded, T* dst) {
  const int64_t blocked_k = width >= 4 ? k / 4 * 4 : 0;
  // Rows that map to the same sets of L1 evict each other. Then whole lines of four rows are packed at a time.
  constexpr int64_t kSetPeriod = 4096, kRowsInOneSet = 8, kLine = 64 / static_cast<int64_t>(sizeof(Src));
  const int64_t row_bytes = stride * static_cast<int64_t>(sizeof(Src));
  const int64_t step = width * std::gcd(row_bytes, kSetPeriod) > kRowsInOneSet * kSetPeriod ? kLine : 4;
  for (int64_t p = 0; p < blocked_k; p += step) {
    const int64_t count = step == 4 || p + step <= blocked_k ? step : blocked_k - p;
    T* out = dst + p * padded;
    int64_t i = 0;
    for (; i + 4 <= width; i += 4) transpose_rows(src + i * stride + p, stride, count, out + i, padded);
    // The last block overlaps the previous one instead of exceeding the width.
    const int64_t last = width - 4;
    if (i < width) transpose_rows(src + last * stride + p, stride, count, out + last, padded);
  }
  for (int64_t p = blocked_k; p < k; ++p) {
    for (int64_t i = 0; i < width; ++i) dst[p * padded + i] = static_cast<T>(src[i * stride + p]);
  }
  if (padded > width) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = width; i < padded; ++i) dst[p * padded + i] = T{};
    }
  }
}

template <typename Src, typename T>
void pack(const PackArgs& args) {
  if (!args.k_contiguous) {
    pack_rows<CopyRow<Src, T>>(args);
    return;
  }
  for_panels(args, [&](int64_t first, int64_t width, int64_t padded) {
    transpose_panel(static_cast<const Src*>(args.src) + first * args.stride, args.stride, args.k, width, padded,
                    static_cast<T*>(args.dst) + first * args.k);
  });
}

template <class D>
HWY_INLINE void zip_pairs(D d, const uint16_t* even, const uint16_t* odd, uint32_t* out) {
  const hn::Rebind<uint16_t, D> half;
  const auto low = hn::PromoteTo(d, hn::LoadU(half, even));
  const auto high = hn::PromoteTo(d, hn::LoadU(half, odd));
  hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), d, out);
}

uint32_t pair_of(BF16 even, BF16 odd) { return uint32_t{even.bits} | (uint32_t{odd.bits} << 16); }

// A row operation for copy_rows: combines the elements of two source rows to pairs, which are panel elements.
struct ZipRow {
  using Source = BF16;
  using Element = uint32_t;
  static constexpr int64_t kGroup = 2;
  static HWY_INLINE void apply(const BF16* src, int64_t stride, int64_t width, uint32_t* out) {
    const hn::ScalableTag<uint32_t> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const uint16_t* even = reinterpret_cast<const uint16_t*>(src);
    const uint16_t* odd = even + stride;
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) zip_pairs(d, even + i, odd + i, out + i);
    const hn::FixedTag<uint32_t, 4> d4;
    for (; i + 4 <= width; i += 4) zip_pairs(d4, even + i, odd + i, out + i);
    if (i < width && width >= 4) {
      zip_pairs(d4, even + width - 4, odd + width - 4, out + width - 4);
      return;
    }
    for (; i < width; ++i) out[i] = uint32_t{even[i]} | (uint32_t{odd[i]} << 16);
  }
};

// Packs bf16 pairs: panel element p is elements 2p (in the low half) and 2p + 1 along k.
HWY_ATTR void pack_pairs(const PackArgs& args) {
  const int64_t pairs = args.k / 2;
  const int64_t groups = (args.k + 1) / 2;
  const BF16* const source = static_cast<const BF16*>(args.src);
  uint32_t* const out = static_cast<uint32_t*>(args.dst);
  if (!args.k_contiguous) pack_rows<ZipRow>(args);
  if (!args.k_contiguous && args.k % 2 == 0) return;
  for_panels(args, [&](int64_t first, int64_t width, int64_t padded) {
    const BF16* src = source + first * (args.k_contiguous ? args.stride : 1);
    uint32_t* dst = out + first * groups;
    if (args.k_contiguous && args.stride % 2 == 0) {  // pairs are adjacent already
      transpose_panel(reinterpret_cast<const uint32_t*>(src), args.stride / 2, pairs, width, padded, dst);
    } else if (args.k_contiguous) {
      for (int64_t p = 0; p < pairs; ++p) {
        for (int64_t i = 0; i < width; ++i) {
          const BF16* at = src + i * args.stride + 2 * p;
          dst[p * padded + i] = pair_of(at[0], at[1]);
        }
        for (int64_t i = width; i < padded; ++i) dst[p * padded + i] = 0;
      }
    }
    if (args.k % 2 == 0) return;
    for (int64_t i = 0; i < padded; ++i) {
      const int64_t p = args.k - 1;
      const BF16 last = i >= width ? BF16() : args.k_contiguous ? src[i * args.stride + p] : src[p * args.stride + i];
      dst[pairs * padded + i] = last.bits;
    }
  });
}

HWY_ATTR void store_bf16(const float* from, int64_t ld_from, BF16* c, int64_t ld_c, int64_t rows, int64_t cols,
                         bool accumulate) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, from += ld_from, c += ld_c) {
    int64_t j = 0;
    for (; j + lanes <= cols; j += lanes) {
      auto x = hn::LoadU(d, from + j);
      if (accumulate) x = hn::Add(x, load(d, c + j));
      store(d, x, c + j);
    }
    for (; j < cols; ++j) c[j] = BF16(accumulate ? from[j] + static_cast<float>(c[j]) : from[j]);
  }
}

GemmKernels<float> float_table(DType storage) {
  return {.tile_rows = kTileRows,
          .lanes = lanes_of<float>(),
          .k_group = 1,
          .panel_elem_bytes = sizeof(float),
          .pack = storage == DType::kBFloat16 ? &pack<BF16, float> : &pack<float, float>,
          .tile = &run_tile<float, false>,
          .tile_in_place = storage == DType::kFloat32 ? &run_tile<float, true> : nullptr,
          .store_bf16 = &store_bf16};
}

GemmKernels<double> double_table() {
  return {.tile_rows = kTileRows,
          .lanes = lanes_of<double>(),
          .k_group = 1,
          .panel_elem_bytes = sizeof(double),
          .pack = &pack<double, double>,
          .tile = &run_tile<double, false>,
          .tile_in_place = &run_tile<double, true>,
          .store_bf16 = nullptr};
}

}  // namespace ashlar::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {

GemmKernels<float> float_kernels(Isa isa, DType storage) { return ASHLAR_FOR_ISA(isa, float_table)(storage); }
GemmKernels<double> double_kernels(Isa isa) { return ASHLAR_FOR_ISA(isa, double_table)(); }

// The dot-product tile needs an instruction that Highway lacks; tile_bf16_avx512.cpp adds it.
GemmKernels<float> bf16_pair_kernels() {
  GemmKernels<float> kernels = ASHLAR_AVX512(float_table)(DType::kBFloat16);
  kernels.k_group = 2;
  kernels.panel_elem_bytes = sizeof(uint32_t);
  kernels.pack = &ASHLAR_AVX512(pack_pairs);
  return kernels;
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
