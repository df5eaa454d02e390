// Chooses the experts of each row and computes their weights (routing_backward.cu: the gradient; router_statistics.cu:
// sums over rows, balance loss).
// A warp processes a row. It reads E logits and writes 2 k numbers; k passes over E keys in shared memory take longer
// than these bytes from about k = 4 on. Choices are integer work: a selection value becomes an integer key of the same
// order, and the maximum of a warp is one instruction.

#include "core/backend/routing.h"

#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/router_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int64_t kMostWarps = 8;           // of a block
constexpr int64_t kSharedBytes = 48 << 10;  // of a block with several warps

/// Integers in the order of numbers: key(a) < key(b) iff a < b. NaN is less than any number, and kTaken is less than
/// NaN.
template <typename A>
struct Keys {
  using Key = std::conditional_t<sizeof(A) == 4, uint32_t, uint64_t>;
  static constexpr Key kTaken = 0, kNaN = 1;
  static constexpr Key kSign = Key{1} << (8 * sizeof(A) - 1);

  __device__ __forceinline__ static Key of(A value) {
    if (value != value) return kNaN;
    const auto bits = std::bit_cast<Key>(value + A{0});  // -0 becomes 0
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  __device__ __forceinline__ static A value(Key key) {
    if (key == kNaN) return std::numeric_limits<A>::quiet_NaN();
    return std::bit_cast<A>((key & kSign) != 0 ? key ^ kSign : ~key);
  }
  /// The largest key of the warp. The whole warp must call it.
  __device__ __forceinline__ static Key largest(Key key) {
    if constexpr (sizeof(Key) == 4) {
      return __reduce_max_sync(0xffffffffU, key);
    } else {
      const auto high = static_cast<uint32_t>(key >> 32);
      const uint32_t highest = __reduce_max_sync(0xffffffffU, high);
      const uint32_t lowest = __reduce_max_sync(0xffffffffU, high == highest ? static_cast<uint32_t>(key) : 0U);
      return Key{highest} << 32 | lowest;
    }
  }
};

/// Returns the index of the largest key, of equal keys the lowest, and marks it as taken. Lane l alone reads and marks
/// keys l, l + 32, ... The whole warp must call it.
template <typename A>
__device__ __forceinline__ int take_largest(typename Keys<A>::Key* keys, int count, int lane) {
  auto best = Keys<A>::kTaken;
  int at = INT32_MAX;
  for (int e = lane; e < count; e += 32) {
    if (keys[e] > best) {
      best = keys[e];
      at = e;
    }
  }
  const auto largest = Keys<A>::largest(best);
  const int taken = __reduce_min_sync(0xffffffffU, best == largest ? at : INT32_MAX);
  if (taken == at) keys[taken] = Keys<A>::kTaken;
  return taken;
}

template <typename A>
struct Route {
  using Key = typename Keys<A>::Key;

  Rows<const A> logits;
  const A* selection_bias;
  ExpertScales<A> expert_scale;
  const int32_t* forced;
  int32_t* choices;
  A* weights;
  int64_t rows;
  int experts, k, groups, top_groups;
  bool by_score;  ///< selection values are scores and not logits
  bool top_two;
  WeightRule<A> rule;

  /// Shared memory of a warp: keys of experts, keys of groups, chosen experts.
  int64_t warp_bytes() const {
    return ((experts + groups) * int64_t{sizeof(Key)} + k * int64_t{sizeof(int32_t)} + 15) / 16 * 16;
  }
};

/// Marks the experts of all groups but the best top_groups as taken.
template <typename A>
__device__ __forceinline__ void keep_top_groups(const Route<A>& a, typename Keys<A>::Key* keys,
                                                typename Keys<A>::Key* group_keys, int lane) {
  const int size = a.experts / a.groups;
  __syncwarp();  // lanes read the keys of others
  for (int g = lane; g < a.groups; g += 32) {
    auto first = Keys<A>::kTaken, second = Keys<A>::kTaken;
    for (int i = 0; i < size; ++i) {
      const auto key = keys[g * size + (i + g) % size];  // lanes begin in different banks
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) {
        second = key;
      }
    }
    group_keys[g] = a.top_two ? Keys<A>::of(Keys<A>::value(first) + Keys<A>::value(second)) : first;
  }
  for (int i = 0; i < a.top_groups; ++i) take_largest<A>(group_keys, a.groups, lane);
  __syncwarp();  // all groups are decided, and no lane reads the keys of others any more
  for (int e = lane; e < a.experts; e += 32) {
    if (group_keys[e / size] != Keys<A>::kTaken) keys[e] = Keys<A>::kTaken;
  }
}

/// A warp  1. computes a key for each expert  2. excludes groups  3. takes the k largest keys  4. computes the weights.
template <typename A>
__global__ void __launch_bounds__(32 * kMostWarps) route_forward_kernel(Route<A> a, int64_t warp_bytes) {
  ASHLAR_DYNAMIC_SHARED(unsigned char, shared);
  const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int64_t n = int64_t{blockIdx.x} * (blockDim.x / 32) + warp;
  if (n >= a.rows) return;
  auto* const keys = reinterpret_cast<typename Keys<A>::Key*>(shared + warp * warp_bytes);
  auto* const group_keys = keys + a.experts;
  auto* const chosen = reinterpret_cast<int32_t*>(group_keys + a.groups);
  const A* const row = a.logits[n];

  // 1. keys
  RowSoftmax<A> softmax;
  if (!a.rule.sigmoid && (a.by_score || !a.rule.alone)) softmax = RowSoftmax<A>(row, a.experts, lane);
  bool has_nan = false;
  for (int e = lane; e < a.experts; e += 32) {
    A value = row[e];
    has_nan = has_nan || value != value;
    if (a.by_score) {
      value = a.rule.sigmoid ? Sigmoid<A>(value).score : softmax.p(value);
      if (a.selection_bias != nullptr) value += a.selection_bias[e];
    }
    keys[e] = Keys<A>::of(value);
  }
  has_nan = __any_sync(0xffffffffU, has_nan ? 1 : 0) != 0;
  if (a.forced == nullptr) {
    // 2. groups
    if (a.top_groups < a.groups) keep_top_groups(a, keys, group_keys, lane);
    // 3. choices
    for (int j = 0; j < a.k; ++j) {
      const int expert = take_largest<A>(keys, a.experts, lane);
      if (lane == 0) chosen[j] = expert;
    }
  } else {
    for (int j = lane; j < a.k; j += 32) chosen[j] = a.forced[n * a.k + j];
  }
  __syncwarp();  // all lanes know the choices

  // 4. weights
  const ChosenShares<A> shares(a.rule, row, chosen, a.k, softmax, lane);
  for (int j = lane; j < a.k; j += 32) {
    const int expert = chosen[j];
    const A weight = a.rule.scale * shares(row[expert]) * a.expert_scale[expert];
    a.choices[n * a.k + j] = expert;
    a.weights[n * a.k + j] = has_nan ? std::numeric_limits<A>::quiet_NaN() : weight;
  }
}

}  // namespace

void CudaBackend::launch(const RouteForward& args, Stream& stream) {
  if (args.choices.size() == 0) return;
  check_experts("route_forward", args.logits.cols);
  with_accumulate(args.logits.dtype, [&](auto t) {
    using A = decltype(t);
    const RouterRule& rule = args.rule;
    const bool top_two = rule.groups > 1 && rule.group_score == GroupScore::kTopTwo;
    const Route<A> route{.logits = rows_of<A>(args.logits),
                         .selection_bias = static_cast<const A*>(args.selection_bias.data),
                         .expert_scale = ExpertScales<A>::of(args.expert_scale),
                         .forced = static_cast<const int32_t*>(args.forced.data),
                         .choices = static_cast<int32_t*>(args.choices.data),
                         .weights = static_cast<A*>(args.weights.data),
                         .rows = args.logits.rows,
                         .experts = static_cast<int>(args.logits.cols),
                         .k = static_cast<int>(args.choices.cols),
                         .groups = static_cast<int>(rule.groups),
                         .top_groups = static_cast<int>(rule.top_groups),
                         .by_score = args.selection_bias || top_two,
                         .top_two = top_two,
                         .rule = WeightRule<A>::of(rule)};
    const int64_t warps = std::max<int64_t>(1, std::min(kMostWarps, kSharedBytes / route.warp_bytes()));
    run_kernel(stream,
               {.name = "route_forward",
                .grid = blocks_for(args.logits.rows, warps),
                .block = static_cast<unsigned>(32 * warps),
                .shared_bytes = warps * route.warp_bytes()},
               route_forward_kernel<A>, route, route.warp_bytes());
  });
}

}  // namespace ashlar::ASHLAR_DEV
