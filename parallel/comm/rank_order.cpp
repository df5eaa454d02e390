// Memory bound: reads p operands, writes one. The accumulator is a tile that stays in the first cache, so that p is not
// a constant of the inner loops and each of them is one that compilers vectorise (this file is built with -O3).
#include "parallel/comm/rank_order.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

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
void store(const A* sums, T* out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(sums[i]);
}
template <>
void store(const int64_t* sums, int32_t* out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const auto narrow = static_cast<int32_t>(sums[i]);
    ASHLAR_CHECK(narrow == sums[i], "a sum of int32 is ", sums[i]);
    out[i] = narrow;
  }
}

template <typename T>
void reduce(const RankOrderReduce& args) {
  using A = typename AccumulatorOf<T>::type;
  std::array<A, kTile> tile;  // NOLINT: each element is written before it is read
  A* const acc = tile.data();
  for (int64_t begin = 0; begin < args.size; begin += kTile) {
    const int64_t size = std::min(kTile, args.size - begin);
    const T* first = static_cast<const T*>(args.operands[0]) + begin;
    for (int64_t i = 0; i < size; ++i) acc[i] = static_cast<A>(first[i]);
    for (const void* operand : args.operands.subspan(1)) {
      const T* x = static_cast<const T*>(operand) + begin;
      if (args.op == ReduceOp::kSum) {
        for (int64_t i = 0; i < size; ++i) acc[i] += static_cast<A>(x[i]);
      } else {
        // A NaN in the accumulator stays, one in x enters.
        for (int64_t i = 0; i < size; ++i) {
          const A value = static_cast<A>(x[i]);
          acc[i] = acc[i] >= value || acc[i] != acc[i] ? acc[i] : value;
        }
      }
    }
    store(acc, static_cast<T*>(args.out) + begin, size);
  }
}

}  // namespace

void reduce_in_rank_order(const RankOrderReduce& args) {
  ASHLAR_CHECK(!args.operands.empty());
  switch (args.dtype) {
    case DType::kFloat32: return reduce<float>(args);
    case DType::kBFloat16: return reduce<BF16>(args);
    case DType::kFloat64: return reduce<double>(args);
    case DType::kInt32: return reduce<int32_t>(args);
    default: throw Bug(str_cat("[comm] no reduction of ", name_of(args.dtype)));
  }
}

}  // namespace ashlar::comm
