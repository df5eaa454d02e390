#include "kernels/cpu/gemm/column_sums.h"

#include <algorithm>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/parallel_for.h"

// One addition per element, bound by reading x. Each thread sums whole columns, so no partial sums are added across
// threads.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/column_sums.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kRowBlock = 64;
constexpr int64_t kColBlock = 512;

template <typename T, typename Acc>
HWY_ATTR void add_block(const T* x, int64_t stride, int64_t rows, int64_t cols, Acc* out, bool fresh) {
  const hn::ScalableTag<Acc> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= cols; j += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) sum = hn::Add(sum, load(d, x + r * stride + j));
    hn::StoreU(fresh ? sum : hn::Add(sum, hn::LoadU(d, out + j)), d, out + j);
  }
  for (; j < cols; ++j) {
    Acc sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += static_cast<Acc>(x[r * stride + j]);
    out[j] = fresh ? sum : out[j] + sum;
  }
}

template <typename T, typename Acc>
void columns(const ConstView& x, Acc* out, bool accumulate, int64_t begin, int64_t end) {
  if (x.rows == 0 && !accumulate) std::fill(out + begin, out + end, Acc{0});
  const T* data = static_cast<const T*>(x.data);
  for (int64_t j = begin; j < end; j += kColBlock) {
    const int64_t cols = std::min(kColBlock, end - j);
    for (int64_t r = 0; r < x.rows; r += kRowBlock) {
      const int64_t rows = std::min(kRowBlock, x.rows - r);
      add_block(data + r * x.stride + j, x.stride, rows, cols, out + j, r == 0 && !accumulate);
    }
  }
}

void column_range(const ConstView& x, void* out, bool accumulate, int64_t begin, int64_t end) {
  switch (x.dtype) {
    case DType::kFloat32: return columns<float>(x, static_cast<float*>(out), accumulate, begin, end);
    case DType::kBFloat16: return columns<BF16>(x, static_cast<float*>(out), accumulate, begin, end);
    default: return columns<double>(x, static_cast<double*>(out), accumulate, begin, end);
  }
}

}  // namespace ashlar::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {

namespace {

/// Calls body(begin, end) on ranges of columns of x. Threads get whole groups of 16 columns, so that different threads
/// do not write to the same cache line.
template <typename Body>
void for_column_ranges(const ConstView& x, Threads& threads, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(16 * x.rows, 1));
  parallel_for(threads, (x.cols + 15) / 16, grain,
               [&](int64_t begin, int64_t end) { body(begin * 16, std::min(end * 16, x.cols)); });
}

void check_column_sums(const ConstView& x, int64_t groups, const MutView& out) {
  ASHLAR_CHECK(is_floating(x.dtype) && out.dtype == accumulate_dtype(x.dtype) && out.size() == groups * x.cols,
               "expected one sum per column in the accumulate dtype, got column sums of ", name_of(x.dtype), " [",
               x.rows, ", ", x.cols, "] in ", groups, " groups into ", name_of(out.dtype), " [", out.size(), "]");
}

}  // namespace

void column_sums(ConstView x, MutView out, bool accumulate, Isa isa, Threads& threads) {
  check_column_sums(x, 1, out);
  const auto run = ASHLAR_FOR_ISA(isa, column_range);
  for_column_ranges(x, threads, [&](int64_t begin, int64_t end) { run(x, out.data, accumulate, begin, end); });
}

void column_sums_of_groups(ConstView x, std::span<const int32_t> offsets, MutView out, bool accumulate, Isa isa,
                           Threads& threads) {
  const int64_t groups = static_cast<int64_t>(offsets.size()) - 1;
  check_column_sums(x, groups, out);
  const auto run = ASHLAR_FOR_ISA(isa, column_range);
  for_column_ranges(x, threads, [&](int64_t begin, int64_t end) {
    char* sums = static_cast<char*>(out.data);
    for (size_t g = 0; g + 1 < offsets.size(); ++g, sums += x.cols * size_of(out.dtype)) {
      run(row_range(x, offsets[g], offsets[g + 1] - offsets[g]), sums, accumulate, begin, end);
    }
  });
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
