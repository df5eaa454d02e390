// One launch applies an update rule to all segments of a rank; each rule is a struct. Memory-bound. AdamW reads grad,
// master, m, v and writes the last three (28 B per element in fp32, 30 with bf16 weights) for about 15 flops, a square
// root and a division. Lion reads grad, master, m and writes the last two (20 B and 22) for about 8 flops. Each state
// tensor in bf16 saves 4 B, and costs all of them together a quarter of a Philox block per element. Elements are
// independent; blocks process parts of the packed state.

#include "core/backend/optimizer.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int64_t kPart = 8192;  // elements of the packed state that a block processes at a time

/// Hyper-parameters of a rule in the form of a kernel argument. From them `prepared` computes the constants for one
/// segment in one training step.
struct AdamWRule {
  static constexpr int kStates = 2;  // m, v
  double beta1, beta2, eps;

  template <typename A>
  struct Prepared {
    A clip, beta1, beta2, rest1, rest2, decay, step, inverse_c2, eps;

    __device__ __forceinline__ void operator()(A grad, A (&state)[kStates], A& w) const {
      const A g = grad * clip;
      state[0] = fused(beta1, state[0], rest1 * g);
      state[1] = fused(beta2, state[1], rest2 * (g * g));
      w = fused(-decay, w, w);
      w -= step * state[0] / (root(state[1] * inverse_c2) + eps);
    }
  };
  template <typename A>
  __device__ Prepared<A> prepared(const StepScalars& scalars, const ClipState& clip, const UpdateSegment& s) const {
    const double lr = scalars.lr * s.lr_multiplier;
    return {static_cast<A>(clip.clip_scale),
            static_cast<A>(beta1),
            static_cast<A>(beta2),
            static_cast<A>(1 - beta1),
            static_cast<A>(1 - beta2),
            static_cast<A>(lr * s.weight_decay),
            static_cast<A>(lr / scalars.beta1_correction),
            static_cast<A>(1 / scalars.beta2_correction),
            static_cast<A>(eps)};
  }
};

struct LionRule {
  static constexpr int kStates = 1;  // m
  double beta1, beta2;

  template <typename A>
  struct Prepared {
    A clip, beta1, beta2, rest1, rest2, decay, step;

    __device__ __forceinline__ void operator()(A grad, A (&state)[kStates], A& w) const {
      const A g = grad * clip;
      const A direction = fused(beta1, state[0], rest1 * g);
      const A move = direction == A{0} ? A{0} : copysign(step, direction);
      w = fused(-decay, w, w) - move;
      state[0] = fused(beta2, state[0], rest2 * g);
    }
  };
  template <typename A>
  __device__ Prepared<A> prepared(const StepScalars& scalars, const ClipState& clip, const UpdateSegment& s) const {
    const double lr = scalars.lr * s.lr_multiplier;
    return {static_cast<A>(clip.clip_scale),
            static_cast<A>(beta1),
            static_cast<A>(beta2),
            static_cast<A>(1 - beta1),
            static_cast<A>(1 - beta2),
            static_cast<A>(lr * s.weight_decay),
            static_cast<A>(lr)};
  }
};

/// The arguments of an update, in the form of a kernel argument. W is the type of the weights, S that of the state.
template <typename A, typename W, typename S, int kStates>
struct UpdateParams {
  const A* grad;
  A* master;
  S* state[kStates];
  W* weights;  ///< null if the master weights are the weights
  const UpdateSegment* segments;
  int64_t num_segments;
  int64_t size;  ///< number of elements of the packed state
  const StepScalars* scalars;
  const ClipState* clip;
  uint64_t seed;
  bool aligned;  ///< true if all tensors are aligned for vectors
};

/// Rounds a state to bf16 stochastically: adds the lower 16 bits of `draw` to what the upper half leaves out.
__device__ __forceinline__ BF16 round_by(float value, uint32_t draw) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  BF16 out;
  out.bits = static_cast<uint16_t>((nan ? bits | 0x400000U : bits + (draw & 0xffffU)) >> 16);
  return out;
}

/// True if the vectors of kW elements that begin at multiples of kW of the packed state begin at multiples of kW of the
/// global tensor too, and do not cross the end of a row of this rank's part. Then a Philox block has the words of each.
template <int kW>
__device__ __forceinline__ bool philox_aligned(const UpdateSegment& s) {
  static_assert(kW == 4);
  const int64_t to_part = s.first - s.packed_begin;
  return s.row_gap == 0 ? (s.global_begin + to_part) % kW == 0
                        : (s.global_begin | to_part | s.cols | s.row_gap) % kW == 0;
}

/// Updates kW elements, which begin at index `packed` of the packed state and at index `flat` of the flat buffers.
template <int kW, typename A, typename W, typename S, int kStates, typename Prepared>
__device__ __forceinline__ void update_vector(const UpdateParams<A, W, S, kStates>& a, const Prepared& rule,
                                              const UpdateSegment& segment, int64_t packed, int64_t flat) {
  constexpr bool kRounds = std::is_same_v<S, BF16>;
  A* const master = a.master + (a.weights != nullptr ? packed : flat);
  const Vec<A, kW> grad = load<kW>(a.grad + flat);
  Vec<A, kW> w = load<kW>(master);
  Vec<S, kW> state[kStates], next[kStates]{};
  ASHLAR_UNROLL
  for (int s = 0; s < kStates; ++s) state[s] = load<kW>(a.state[s] + packed);
  [[maybe_unused]] Philox::Counter words{};
  [[maybe_unused]] uint32_t word = 0;  // of the only element, if kW is 1
  if constexpr (kRounds) {
    const uint64_t e = segment.global_index(packed - segment.packed_begin), block = e / 4;
    words = Philox::apply({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), segment.rng_stream,
                           static_cast<uint32_t>(a.scalars->philox_step)},
                          {static_cast<uint32_t>(a.seed), static_cast<uint32_t>(a.seed >> 32)});
    const uint32_t low = e % 2 == 0 ? words[0] : words[1], high = e % 2 == 0 ? words[2] : words[3];
    word = e % 4 < 2 ? low : high;
  }
  ASHLAR_UNROLL
  for (int i = 0; i < kW; ++i) {
    A state_i[kStates];
    ASHLAR_UNROLL
    for (int s = 0; s < kStates; ++s) state_i[s] = state[s].wide(i);
    rule(grad.v[i], state_i, w.v[i]);
    ASHLAR_UNROLL
    for (int s = 0; s < kStates; ++s) {
      if constexpr (kRounds) {
        next[s].set(i, round_by(state_i[s], (kW == 1 ? word : words[static_cast<size_t>(i)]) >> (16 * s)));
      } else {
        next[s].set(i, state_i[s]);
      }
    }
  }
  ASHLAR_UNROLL
  for (int s = 0; s < kStates; ++s) store(a.state[s] + packed, next[s]);
  store(master, w);
  if (a.weights != nullptr) store(a.weights + flat, narrow<W>(w.v));
}

/// A block processes one part of the packed state at a time:
/// 1. finds the first segment that overlaps the part
/// 2. updates the range of each segment in the part: by whole vectors if state and flat buffers are equally aligned,
///    and the other elements one by one.
template <typename A, typename W, typename S, typename Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateParams<A, W, S, Rule::kStates> a, Rule rule) {
  constexpr int kW = kWidth<A>;
  if (a.clip->skip != 0) return;
  const auto thread = static_cast<int64_t>(threadIdx.x);
  for (int64_t begin = blockIdx.x * kPart; begin < a.size; begin += gridDim.x * kPart) {
    const int64_t end = min(begin + kPart, a.size);
    // 1. find the first segment that overlaps the part; segments end in ascending order
    int64_t first = 0;
    for (int64_t last = a.num_segments; first < last;) {
      const int64_t middle = (first + last) / 2;
      if (a.segments[middle].packed_begin + a.segments[middle].size <= begin) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    for (; first < a.num_segments && a.segments[first].packed_begin < end; ++first) {
      // 2. update elements [from, to) of the packed state
      const UpdateSegment& stored = a.segments[first];
      UpdateSegment segment{.flat_begin = stored.flat_begin,
                            .packed_begin = stored.packed_begin,
                            .size = stored.size,
                            .lr_multiplier = stored.lr_multiplier,
                            .weight_decay = stored.weight_decay};
      if constexpr (std::is_same_v<S, BF16>) segment = stored;  // other types need no position in the global tensor
      const int64_t from = max(begin, segment.packed_begin), to = min(end, segment.packed_begin + segment.size);
      const int64_t to_flat = segment.flat_begin - segment.packed_begin;
      const auto prepared = rule.template prepared<A>(*a.scalars, *a.clip, segment);
      bool vector = a.aligned && to_flat % kW == 0;
      if constexpr (std::is_same_v<S, BF16>) vector = vector && philox_aligned<kW>(segment);
      const int64_t body = vector ? min(to, (from + kW - 1) / kW * kW) : to;
      const int64_t body_end = max(body, to / kW * kW);
      for (int64_t i = body + thread * kW; i < body_end; i += kThreads * kW) {
        update_vector<kW>(a, prepared, segment, i, i + to_flat);
      }
      for (int64_t i = from + thread; i < body; i += kThreads) update_vector<1>(a, prepared, segment, i, i + to_flat);
      for (int64_t i = body_end + thread; i < to; i += kThreads) update_vector<1>(a, prepared, segment, i, i + to_flat);
    }
  }
}

template <typename A, typename W, typename S, typename Args, typename Rule>
void launch_update(const Args& args, const Rule& rule, Stream& stream) {
  const Update& u = args.update;
  const std::array<ConstView, Rule::kStates> state = args.state();
  UpdateParams<A, W, S, Rule::kStates> params{
      .grad = static_cast<const A*>(u.grad.data),
      .master = static_cast<A*>(u.master.data),
      .state = {},
      .weights = static_cast<W*>(u.weights.data),
      .segments = static_cast<const UpdateSegment*>(u.segments.data),
      .num_segments = static_cast<int64_t>(table_of<UpdateSegment>(u.segments).size()),
      .size = state[0].size(),
      .scalars = static_cast<const StepScalars*>(u.scalars.data),
      .clip = static_cast<const ClipState*>(u.clip.data),
      .seed = u.seed,
      .aligned = rows_aligned_for(kWidth<A>, u.grad, u.master, u.weights)};
  for (size_t i = 0; i < state.size(); ++i) {
    params.state[i] = const_cast<S*>(static_cast<const S*>(state[i].data));
    params.aligned = params.aligned && rows_aligned(state[i], kWidth<A>);
  }
  if (params.size == 0 || params.num_segments == 0) return;
  run_kernel(stream,
             {.name = Args::kName.data(),
              .grid = num_blocks(div_up(params.size, kPart), 16 * kMultiprocessors),
              .block = static_cast<unsigned>(kThreads)},
             update_kernel<A, W, S, Rule>, params, rule);
}

template <typename Args, typename Rule>
void launch_by_dtype(const Args& args, const Rule& rule, Stream& stream) {
  const Update& u = args.update;
  if (u.master.dtype == DType::kFloat64) return launch_update<double, double, double>(args, rule, stream);
  const bool narrow_weights = u.weights && u.weights.dtype == DType::kBFloat16;
  if (args.m.dtype == DType::kBFloat16) {
    return narrow_weights ? launch_update<float, BF16, BF16>(args, rule, stream)
                          : launch_update<float, float, BF16>(args, rule, stream);
  }
  if (narrow_weights) return launch_update<float, BF16, float>(args, rule, stream);
  launch_update<float, float, float>(args, rule, stream);
}

}  // namespace

void CudaBackend::launch(const AdamW& args, Stream& stream) {
  launch_by_dtype(args, AdamWRule{.beta1 = args.beta1, .beta2 = args.beta2, .eps = args.eps}, stream);
}

void CudaBackend::launch(const Lion& args, Stream& stream) {
  launch_by_dtype(args, LionRule{.beta1 = args.beta1, .beta2 = args.beta2}, stream);
}

}  // namespace ashlar::ASHLAR_DEV
