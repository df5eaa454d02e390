// The reduction of p operands is memory bound: it reads p vectors and writes one. Operands are added one after another
// into a tile in the L1 cache, so p need not be a compile-time constant, and compilers vectorise each pass (this file
// is built with -O3). The first pass reads two operands, and the last pass writes the result. So a tile takes p - 1
// passes for p operands.
#include "parallel/comm/rank_order.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

// Inlined into the caller, so that it is compiled for the caller's instruction set.
#define ASHLAR_INLINE [[gnu::always_inline]] inline

constexpr int64_t kTile = 1024;

template <typename T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <>
struct AccumulatorOf<int32_t> {
  using type = int64_t;
};

template <typename T, typename A>
ASHLAR_INLINE T rounded(A value) {
  if constexpr (std::is_same_v<T, int32_t> && std::is_same_v<A, int64_t>) {
    const auto narrow = static_cast<int32_t>(value);
    ASHLAR_CHECK(narrow == value, "a sum of int32 overflows: it is ", value);
    return narrow;
  } else {
    return static_cast<T>(value);
  }
}

// out = left (op) right, element by element; `out` may be `left` or `right`.
template <typename A, typename Left, typename Right, typename Out>
ASHLAR_INLINE void combine(ReduceOp op, const Left* left, const Right* right, Out* out, int64_t size) {
  if (op == ReduceOp::kSum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < size; ++i) out[i] = rounded<Out>(static_cast<A>(left[i]) + static_cast<A>(right[i]));
  } else {
    // If either operand is NaN, the result is NaN.
#pragma GCC ivdep
    for (int64_t i = 0; i < size; ++i) {
      const A a = static_cast<A>(left[i]), b = static_cast<A>(right[i]);
      out[i] = rounded<Out>(a >= b || a != a ? a : b);
    }
  }
}

template <typename T>
ASHLAR_INLINE void reduce(const RankOrderReduce& args) {
  using A = typename AccumulatorOf<T>::type;
  const size_t count = args.operands.size();
  if (count == 1) {
    if (args.size > 0) std::memmove(args.out, args.operands[0], static_cast<size_t>(args.size) * sizeof(T));
    return;
  }
  std::array<A, kTile> tile;  // NOLINT: each element is written before it is read
  for (int64_t begin = 0; begin < args.size; begin += kTile) {
    const int64_t size = std::min(kTile, args.size - begin);
    const auto operand = [&](size_t k) { return static_cast<const T*>(args.operands[k]) + begin; };
    T* const out = static_cast<T*>(args.out) + begin;
    if (count == 2) {
      combine<A>(args.op, operand(0), operand(1), out, size);
      continue;
    }
    combine<A>(args.op, operand(0), operand(1), tile.data(), size);
    for (size_t k = 2; k + 1 < count; ++k) combine<A>(args.op, tile.data(), operand(k), tile.data(), size);
    combine<A>(args.op, tile.data(), operand(count - 1), out, size);
  }
}

ASHLAR_INLINE void reduce_any(const RankOrderReduce& args) {
  switch (args.dtype) {
    case DType::kFloat32: return reduce<float>(args);
    case DType::kBFloat16: return reduce<BF16>(args);
    case DType::kFloat64: return reduce<double>(args);
    case DType::kInt32: return reduce<int32_t>(args);
    default: throw Bug(str_cat("[comm] reductions do not support dtype ", name_of(args.dtype)));
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512bw,avx512vl")]] void reduce_avx512(const RankOrderReduce& args) { reduce_any(args); }
[[gnu::target("avx2")]] void reduce_avx2(const RankOrderReduce& args) { reduce_any(args); }
#endif
void reduce_baseline(const RankOrderReduce& args) { reduce_any(args); }

}  // namespace

std::vector<RankOrderVariant> rank_order_variants() {
  std::vector<RankOrderVariant> variants = {{"baseline", reduce_baseline}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) variants.push_back({"avx2", reduce_avx2});
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    variants.push_back({"avx512", reduce_avx512});
  }
#endif
  return variants;
}

void reduce_in_rank_order(const RankOrderReduce& args) {
  static const RankOrderVariant best = rank_order_variants().back();
  ASHLAR_CHECK(!args.operands.empty());
  best.reduce(args);
}

}  // namespace ashlar::comm
