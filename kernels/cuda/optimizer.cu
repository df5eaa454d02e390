// One launch applies an update rule to all segments of a rank; each rule is a struct. Memory-bound. AdamW reads grad,
// master, m, v and writes the last three (28 B per element in fp32, 30 with bf16 weights) for about 15 flops, a square
// root and a division. Lion reads grad, master, m and writes the last two (20 B and 22) for about 8 flops. Elements are
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

/// The arguments of an update, in the form of a kernel argument. W is the type of the weights.
template <typename A, typename W, int kStates>
struct UpdateParams {
  const A* grad;
  A* master;
  A* state[kStates];
  W* weights;  ///< null if the master weights are the weights
  const UpdateSegment* segments;
  int64_t num_segments;
  int64_t size;  ///< number of elements of the packed state
  const StepScalars* scalars;
  const ClipState* clip;
  bool aligned;  ///< true if all tensors are aligned for vectors
};

/// Updates kW elements, which begin at index `packed` of the packed state and at index `flat` of the flat buffers.
template <int kW, typename A, typename W, int kStates, typename Prepared>
__device__ __forceinline__ void update_vector(const UpdateParams<A, W, kStates>& a, const Prepared& rule,
                                              int64_t packed, int64_t flat) {
  A* const master = a.master + (a.weights != nullptr ? packed : flat);
  const Vec<A, kW> grad = load<kW>(a.grad + flat);
  Vec<A, kW> w = load<kW>(master), state[kStates];
  ASHLAR_UNROLL
  for (int s = 0; s < kStates; ++s) state[s] = load<kW>(a.state[s] + packed);
  ASHLAR_UNROLL
  for (int i = 0; i < kW; ++i) {
    A state_i[kStates];
    ASHLAR_UNROLL
    for (int s = 0; s < kStates; ++s) state_i[s] = state[s].v[i];
    rule(grad.v[i], state_i, w.v[i]);
    ASHLAR_UNROLL
    for (int s = 0; s < kStates; ++s) state[s].v[i] = state_i[s];
  }
  ASHLAR_UNROLL
  for (int s = 0; s < kStates; ++s) store(a.state[s] + packed, state[s]);
  store(master, w);
  if (a.weights != nullptr) store(a.weights + flat, narrow<W>(w.v));
}

/// A block processes one part of the packed state at a time:
/// 1. finds the first segment that overlaps the part
/// 2. updates the range of each segment in the part: by whole vectors if state and flat buffers are equally aligned,
///    and the other elements one by one.
template <typename A, typename W, typename Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateParams<A, W, Rule::kStates> a, Rule rule) {
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
      const UpdateSegment segment = a.segments[first];
      const int64_t from = max(begin, segment.packed_begin), to = min(end, segment.packed_begin + segment.size);
      const int64_t to_flat = segment.flat_begin - segment.packed_begin;
      const auto prepared = rule.template prepared<A>(*a.scalars, *a.clip, segment);
      const bool vector = a.aligned && to_flat % kW == 0;
      const int64_t body = vector ? min(to, (from + kW - 1) / kW * kW) : to;
      const int64_t body_end = max(body, to / kW * kW);
      for (int64_t i = body + thread * kW; i < body_end; i += kThreads * kW) {
        update_vector<kW>(a, prepared, i, i + to_flat);
      }
      for (int64_t i = from + thread; i < body; i += kThreads) update_vector<1>(a, prepared, i, i + to_flat);
      for (int64_t i = body_end + thread; i < to; i += kThreads) update_vector<1>(a, prepared, i, i + to_flat);
    }
  }
}

template <typename A, typename W, typename Args, typename Rule>
void launch_update(const Args& args, const Rule& rule, Stream& stream) {
  const Update& u = args.update;
  const std::array<ConstView, Rule::kStates> state = args.state();
  UpdateParams<A, W, Rule::kStates> params{
      .grad = static_cast<const A*>(u.grad.data),
      .master = static_cast<A*>(u.master.data),
      .state = {},
      .weights = static_cast<W*>(u.weights.data),
      .segments = static_cast<const UpdateSegment*>(u.segments.data),
      .num_segments = static_cast<int64_t>(table_of<UpdateSegment>(u.segments).size()),
      .size = state[0].size(),
      .scalars = static_cast<const StepScalars*>(u.scalars.data),
      .clip = static_cast<const ClipState*>(u.clip.data),
      .aligned = rows_aligned_for(kWidth<A>, u.grad, u.master, u.weights)};
  for (size_t i = 0; i < state.size(); ++i) {
    params.state[i] = const_cast<A*>(static_cast<const A*>(state[i].data));
    params.aligned = params.aligned && rows_aligned(state[i], kWidth<A>);
  }
  if (params.size == 0 || params.num_segments == 0) return;
  run_kernel(stream,
             {.name = Args::kName.data(),
              .grid = num_blocks(div_up(params.size, kPart), 16 * kMultiprocessors),
              .block = static_cast<unsigned>(kThreads)},
             update_kernel<A, W, Rule>, params, rule);
}

template <typename Args, typename Rule>
void launch_by_dtype(const Args& args, const Rule& rule, Stream& stream) {
  const Update& u = args.update;
  if (u.master.dtype == DType::kFloat64) return launch_update<double, double>(args, rule, stream);
  if (u.weights && u.weights.dtype == DType::kBFloat16) return launch_update<float, BF16>(args, rule, stream);
  launch_update<float, float>(args, rule, stream);
}

}  // namespace

void CudaBackend::launch(const AdamW& args, Stream& stream) {
  launch_by_dtype(args, AdamWRule{.beta1 = args.beta1, .beta2 = args.beta2, .eps = args.eps}, stream);
}

void CudaBackend::launch(const Lion& args, Stream& stream) {
  launch_by_dtype(args, LionRule{.beta1 = args.beta1, .beta2 = args.beta2}, stream);
}

}  // namespace ashlar::ASHLAR_DEV
