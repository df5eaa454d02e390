// Activations, plain and gated, and their gradients.
// Memory-bound: bf16 moves 4 to 6 B an element forward and 6 to 10 B backward; an exponential and a division (about 25
// instructions) stay below what an H100 issues in that time. Rows are cut into vectors, matrices without gaps as one
// long row; a thread takes some of them and writes each output once.

#include "core/backend/activation.h"

#include <limits>
#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// Without a clamp and an offset nothing is done to the linear half.
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

/// act(x) and act'(x). The compiler drops what a caller does not use. kFast: results are stored as bf16.
struct Relu : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    value = x < A{0} ? A{0} : x;  // in this order a NaN stays
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

/// With u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u)/2 = logistic(2u).
struct GeluTanh : Plain {
  template <bool kFast, typename A>
  __device__ __forceinline__ static void apply(A x, A& value, A& slope) {
    constexpr auto kScale = static_cast<A>(1.59576912160573071175978);  // 2 sqrt(2/pi)
    constexpr auto kCubic = static_cast<A>(1.59576912160573071175978 * 0.044715);
    const A inside = max(A{-30}, min(A{30}, x));  // beyond the function is flat; keeps x^3 finite
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

struct Sigmoid : Plain {
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

/// f(Act()).
template <typename F>
__host__ __device__ __forceinline__ void with_kind(Activation kind, const F& f) {
  switch (kind) {
    case Activation::kRelu: return f(Relu());
    case Activation::kRelu2: return f(Relu2());
    case Activation::kGeluErf: return f(GeluErf());
    case Activation::kGeluTanh: return f(GeluTanh());
    case Activation::kQuickGelu: return f(QuickGelu());
    case Activation::kSilu: return f(Silu());
    case Activation::kSigmoid: return f(Sigmoid());
    case Activation::kIdentity: return f(Identity());
  }
}

/// Any kind behind the clamp and the offset, chosen while it runs: few models have them. Comparisons stand so that a
/// NaN stays.
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

/// f(what `args` ask for).
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
    const Pieces pieces = cut_pieces(false, kWidth<T>, args.x, args.up, args.y);
    with_activation(args, [&](const auto& act) {
      run_kernel(stream, {.name = "activation_forward", .grid = pieces.blocks(), .block = Pieces::kThreads},
                 activation_forward_kernel<T, std::decay_t<decltype(act)>>, act, pieces, pieces.of<T>(args.x),
                 pieces.of<T>(args.up), pieces.of<T>(args.y));
    });
  });
}

void CudaBackend::launch(const ActivationBackward& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("activation_backward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const MutView dup = args.up ? args.dup : MutView{};
    const Pieces pieces = cut_pieces(false, kWidth<T>, args.x, args.dy, args.up, args.dx, dup);
    with_activation(args, [&](const auto& act) {
      run_kernel(stream, {.name = "activation_backward", .grid = pieces.blocks(), .block = Pieces::kThreads},
                 activation_backward_kernel<T, std::decay_t<decltype(act)>>, act, pieces, pieces.of<T>(args.dy),
                 pieces.of<T>(args.x), pieces.of<T>(args.up), pieces.of<T>(args.dx), pieces.of<T>(dup),
                 args.mode == GradMode::kAccumulate);
    });
  });
}

}  // namespace ashlar::ASHLAR_DEV
