// Activations, plain and gated, and their gradients.
// Memory-bound: bf16 moves 4 to 6 B per element forward and 6 to 10 B backward. While an H100 moves these bytes, it can
// issue more instructions than an exponential and a division need (about 25). Rows (a contiguous matrix is one long
// row) are split into vectors; a thread processes several vectors and writes each output once.

#include "core/backend/activation.h"

#include <limits>
#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// Base of activations without clamp and offset: the linear half (up) of a gated activation stays unchanged.
struct Plain {
  template <typename A>
  __device__ __forceinline__ A linear(A up) const {
    return up;
  }
  template <typename A>
  __device__ __forceinline__ A linear_grad(A, A grad) const {
    return grad;
  }
};

/// Each activation sets value = act(x) and slope = act'(x); the compiler removes a result that is not used. An
/// activation may use approximate functions if kFast is true, which is for results that are stored as bf16.
struct Relu : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    value = x < A{0} ? A{0} : x;  // this order of operands keeps NaN
    slope = x > A{0} ? A{1} : A{0};
  }
};

struct Relu2 : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    const A positive = x < A{0} ? A{0} : x;
    value = positive * positive;
    slope = positive + positive;
  }
};

struct GeluErf : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    A distribution, density;
    normal_distribution<kFast>(x, distribution, density);
    value = x * distribution;
    slope = fused(x, density, distribution);
  }
};

/// Uses (1 + tanh u)/2 = logistic(2u), where u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    constexpr auto kScale = static_cast<A>(1.59576912160573071175978);  // 2 sqrt(2/pi)
    constexpr auto kCubic = static_cast<A>(1.59576912160573071175978 * 0.044715);
    const A inside = max(A{-30}, min(A{30}, x));  // beyond +-30 the logistic is constant, and x^3 could overflow
    const A square = inside * inside;
    A s, r;
    logistic<kFast>(inside * fused(kCubic, square, kScale), s, r);
    value = x * s;
    slope = fused(inside * fused(3 * kCubic, square, kScale) * s, r, s);
  }
};

struct Silu : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    A s, r;
    logistic<kFast>(x, s, r);
    value = x * s;
    slope = fused(value, r, s);
  }
};

struct QuickGelu : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    constexpr auto kFactor = static_cast<A>(1.702);
    A s, r;
    logistic<kFast>(kFactor * x, s, r);
    value = x * s;
    slope = fused(value, kFactor * r, s);
  }
};

struct SigmoidActivation : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    A s, r;
    logistic<kFast>(x, s, r);
    value = x != x ? x : s;
    slope = value * r;
  }
};

struct Identity : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    value = x;
    slope = A{1};
  }
};

/// Calls f with an object of the type that implements `kind`.
template <typename F>
__host__ __device__ __forceinline__ void with_kind(Activation kind, const F& f) {
  switch (kind) {
    case Activation::kRelu: return f(Relu());
    case Activation::kRelu2: return f(Relu2());
    case Activation::kGeluErf: return f(GeluErf());
    case Activation::kGeluTanh: return f(GeluTanh());
    case Activation::kQuickGelu: return f(QuickGelu());
    case Activation::kSilu: return f(Silu());
    case Activation::kSigmoid: return f(SigmoidActivation());
    case Activation::kIdentity: return f(Identity());
    case Activation::kXielu: return;  // has learned scalars and separate kernels
  }
}

/// An activation of any kind with clamp and offset. The kind is a run-time value, since few models use clamp and
/// offset. Comparisons are written so that a NaN input gives a NaN result.
struct Limited {
  Activation kind;
  double clamp, offset;

  template <bool kFast, typename A>
  __device__ __forceinline__ void apply(A x, A& value, A& slope) const {
    const A bound = static_cast<A>(clamp);
    const A gate = x > bound ? bound : x;
    value = slope = 0;  // the compiler cannot see that every kind sets them
    with_kind(kind, [&](auto act) { decltype(act)::template apply<kFast>(gate, value, slope); });
    if (x > bound) slope = 0;
  }
  template <typename A>
  __device__ __forceinline__ A linear(A up) const {
    const A bound = static_cast<A>(clamp);
    return (up > bound ? bound : up < -bound ? -bound : up) + static_cast<A>(offset);
  }
  template <typename A>
  __device__ __forceinline__ A linear_grad(A up, A grad) const {
    const A bound = static_cast<A>(clamp);
    return up > bound || up < -bound ? A{0} : grad;
  }
};

/// y = act(x) [* up].
template <typename T, class Act>
__global__ void __launch_bounds__(Pieces::kThreads)
    activation_forward_kernel(Act act, Pieces pieces, Rows<const T> x, Rows<const T> up, Rows<T> y) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const Vec<T, W> x_v = load_some<W>(x[row] + c, count, pieces.vector);
    Vec<T, W> up_v{};
    if (up) up_v = load_some<W>(up[row] + c, count, pieces.vector);
    A out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      A value, slope;
      act.template apply<sizeof(T) == 2>(x_v.wide(i), value, slope);
      out[i] = up ? value * act.linear(up_v.wide(i)) : value;
    }
    store_some(y[row] + c, narrow<T>(out), count, pieces.vector);
  });
}

/// dx (+)= dy * act'(x) [* up]; dup (+)= dy * act(x).
template <typename T, class Act>
__global__ void __launch_bounds__(Pieces::kThreads, sizeof(T) == 8 ? 2 : 4)
    activation_backward_kernel(Act act, Pieces pieces, Rows<const T> dy, Rows<const T> x, Rows<const T> up, Rows<T> dx,
                               Rows<T> dup, bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const Vec<T, W> dy_v = load_some<W>(dy[row] + c, count, pieces.vector);
    const Vec<T, W> x_v = load_some<W>(x[row] + c, count, pieces.vector);
    Vec<T, W> up_v{}, old_dx{}, old_dup{};
    if (up) up_v = load_some<W>(up[row] + c, count, pieces.vector);
    if (accumulate) old_dx = load_some<W>(dx[row] + c, count, pieces.vector);
    if (accumulate && up) old_dup = load_some<W>(dup[row] + c, count, pieces.vector);
    A dx_out[W], dup_out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      A value, slope;
      act.template apply<sizeof(T) == 2>(x_v.wide(i), value, slope);
      const A dy_i = dy_v.wide(i);
      dx_out[i] = dy_i * slope;
      if (up) dx_out[i] *= act.linear(up_v.wide(i));
      dup_out[i] = act.linear_grad(up_v.wide(i), dy_i * value);
      if (accumulate) {
        dx_out[i] += old_dx.wide(i);
        dup_out[i] += old_dup.wide(i);
      }
    }
    store_some(dx[row] + c, narrow<T>(dx_out), count, pieces.vector);
    if (up) store_some(dup[row] + c, narrow<T>(dup_out), count, pieces.vector);
  });
}

/// The activation xIELU: f(x) = p x^2 + beta x for x > 0, otherwise f(x) = n (expm1(min(x, eps)) - x) + beta x.
/// Comparisons are written so that a NaN input gives a NaN result.
template <typename A>
struct Xielu {
  A p, n;  ///< p = softplus(alpha_p), n = beta + softplus(alpha_n)

  template <typename T>
  __device__ __forceinline__ explicit Xielu(const T* alpha)
      : p(softplus(static_cast<A>(widen(alpha[0])))),
        n(static_cast<A>(kXieluBeta) + softplus(static_cast<A>(widen(alpha[1])))) {}

  /// Returns log(1 + exp(a)) = max(a, 0) + log(1 + e) with e = exp(-|a|). Computes log(1 + e) as log(u) e / (u - 1),
  /// where u is 1 + e after rounding: this is accurate for small e.
  __device__ __forceinline__ static A softplus(A a) {
    const A e = exponential(-fabs(a)), u = A{1} + e;
    return max(a, A{0}) + (u == A{1} ? e : logarithm(u) * e / (u - A{1}));
  }
  __device__ __forceinline__ static A below(A x) {
    constexpr auto kEps = static_cast<A>(kXieluEps);
    return exponential_minus_one(x < kEps ? x : kEps);
  }
  __device__ __forceinline__ A value(A x) const {
    constexpr auto kBeta = static_cast<A>(kXieluBeta);
    return fused(kBeta, x, x > A{0} ? p * x * x : n * (below(x) - x));
  }
  /// Computes slope = f'(x), and by_p and by_n: the factors of dy in the sums for dalpha_p and dalpha_n.
  __device__ __forceinline__ void slopes(A x, A& slope, A& by_p, A& by_n) const {
    constexpr auto kBeta = static_cast<A>(kXieluBeta);
    constexpr auto kEps = static_cast<A>(kXieluEps);
    const A e = below(x);
    by_p = x > A{0} ? x * x : A{0};
    by_n = x > A{0} ? A{0} : e - x;
    // Above eps the exponential is constant.
    slope = kBeta + (x > A{0} ? A{2} * p * x : n * (x < kEps ? e : A{-1}));
  }
};

template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    xielu_forward_kernel(Pieces pieces, const T* scalars, Rows<const T> x, Rows<T> y) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  const Xielu<A> act(scalars);
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const Vec<T, W> x_v = load_some<W>(x[row] + c, count, pieces.vector);
    A out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) out[i] = act.value(x_v.wide(i));
    store_some(y[row] + c, narrow<T>(out), count, pieces.vector);
  });
}

/// 1. computes dx (+)= dy f'(x)  2. writes the block's two partial sums to partials [blocks, 2].
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads, sizeof(T) == 8 ? 2 : 4)
    xielu_backward_kernel(Pieces pieces, const T* scalars, Rows<const T> dy, Rows<const T> x, Rows<T> dx,
                          AccumulateOf<T>* partials, bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  const Xielu<A> act(scalars);
  A sums[2] = {};
  // 1. dx
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const Vec<T, W> dy_v = load_some<W>(dy[row] + c, count, pieces.vector);
    const Vec<T, W> x_v = load_some<W>(x[row] + c, count, pieces.vector);
    Vec<T, W> old_dx{};
    if (accumulate) old_dx = load_some<W>(dx[row] + c, count, pieces.vector);
    A out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      A slope, by_p, by_n;
      act.slopes(x_v.wide(i), slope, by_p, by_n);
      const A dy_i = dy_v.wide(i);  // 0 beyond the end of the row
      sums[0] = fused(dy_i, by_p, sums[0]);
      sums[1] = fused(dy_i, by_n, sums[1]);
      out[i] = dy_i * slope;
      if (accumulate) out[i] += old_dx.wide(i);
    }
    store_some(dx[row] + c, narrow<T>(out), count, pieces.vector);
  });
  // 2. partial sums
  RowGroup<A> block(Pieces::kThreads, shared);
  block.reduce(sums, Add());
  if (threadIdx.x != 0) return;
  partials[2 * int64_t{blockIdx.x}] = sums[0];
  partials[2 * int64_t{blockIdx.x} + 1] = sums[1];
}

/// Launched with one block of two warps, one for each scalar. Each lane adds the partial sums of every 32nd block in
/// order; then the sums of the lanes are added.
template <typename T>
__global__ void __launch_bounds__(64)
    xielu_scalars_kernel(const AccumulateOf<T>* partials, int blocks, const T* scalars, AccumulateOf<T>* dscalars,
                         bool accumulate) {
  using A = AccumulateOf<T>;
  const auto which = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  A sum = 0;
  for (int b = lane; b < blocks; b += 32) sum += partials[2 * b + which];
  sum = warp_reduce(sum, Add());
  if (lane != 0) return;
  A s, r;
  logistic<false>(static_cast<A>(widen(scalars[which])), s, r);
  dscalars[which] = fused(sum, s, accumulate ? dscalars[which] : A{0});
}

/// Calls f with the activation of `args`.
template <class Args, typename F>
void with_activation(const Args& args, const F& f) {
  if (args.limited()) {
    const double clamp = args.clamp == 0 ? std::numeric_limits<double>::infinity() : args.clamp;
    return f(Limited{args.kind, clamp, args.linear_offset});
  }
  with_kind(args.kind, f);
}

}  // namespace

void CudaBackend::launch(const ActivationForward& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("activation_forward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    if (args.kind == Activation::kXielu) {
      const Pieces pieces = split_pieces(false, kWidth<T>, args.x, args.y);
      return run_kernel(stream, {.name = "xielu_forward", .grid = pieces.blocks(), .block = Pieces::kThreads},
                        xielu_forward_kernel<T>, pieces, static_cast<const T*>(args.scalars.data), pieces.of<T>(args.x),
                        pieces.of<T>(args.y));
    }
    const Pieces pieces = split_pieces(false, kWidth<T>, args.x, args.up, args.y);
    with_activation(args, [&](const auto& act) {
      run_kernel(stream, {.name = "activation_forward", .grid = pieces.blocks(), .block = Pieces::kThreads},
                 activation_forward_kernel<T, std::decay_t<decltype(act)>>, act, pieces, pieces.of<T>(args.x),
                 pieces.of<T>(args.up), pieces.of<T>(args.y));
    });
  });
}

void CudaBackend::launch(const ActivationBackward& args, Stream& stream) {
  if (args.kind == Activation::kXielu) {
    // The kernels also run for an empty matrix, since dscalars must be written. A contiguous matrix is not treated as
    // one long row here, so that the order of addition does not depend on strides.
    return with_storage("activation_backward", args.x.dtype, [&](auto t) {
      using T = decltype(t);
      using A = AccumulateOf<T>;
      const Pieces pieces = split_pieces(true, kWidth<T>, args.x, args.dy, args.dx);
      const unsigned blocks = pieces.blocks();
      const auto* const scalars = static_cast<const T*>(args.scalars.data);
      A* const partials = static_cast<A*>(scratch(stream, int64_t{blocks} * 2 * static_cast<int64_t>(sizeof(A))));
      run_kernel(stream, {.name = "xielu_backward", .grid = blocks, .block = Pieces::kThreads},
                 xielu_backward_kernel<T>, pieces, scalars, pieces.of<T>(args.dy), pieces.of<T>(args.x),
                 pieces.of<T>(args.dx), partials, args.mode == GradMode::kAccumulate);
      if (!args.dscalars || args.scalars_mode == GradMode::kSkip) return;
      run_kernel(stream, {.name = "xielu_scalars", .grid = 1, .block = 64}, xielu_scalars_kernel<T>, partials,
                 static_cast<int>(blocks), scalars, static_cast<A*>(args.dscalars.data),
                 args.scalars_mode == GradMode::kAccumulate);
    });
  }
  if (args.x.size() == 0) return;
  with_storage("activation_backward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const MutView dup = args.up ? args.dup : MutView{};
    const Pieces pieces = split_pieces(false, kWidth<T>, args.x, args.dy, args.up, args.dx, dup);
    with_activation(args, [&](const auto& act) {
      run_kernel(stream, {.name = "activation_backward", .grid = pieces.blocks(), .block = Pieces::kThreads},
                 activation_backward_kernel<T, std::decay_t<decltype(act)>>, act, pieces, pieces.of<T>(args.dy),
                 pieces.of<T>(args.x), pieces.of<T>(args.up), pieces.of<T>(args.dx), pieces.of<T>(dup),
                 args.mode == GradMode::kAccumulate);
    });
  });
}

}  // namespace ashlar::ASHLAR_DEV
