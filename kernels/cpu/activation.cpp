// Activations, plain and gated, and their gradients.
// fp32 moves 8 to 12 B an element forward and 12 to 20 B backward; an exponential and a division (about 25 flops) keep
// it near the memory bound with AVX-512 and above it with AVX2. Threads take contiguous rows; contiguous matrices are
// cut as one long row.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Without a clamp and an offset nothing is done to the linear half.
struct Plain {
  template <class D>
  HWY_INLINE VecOf<D> linear(D, VecOf<D> up) const {
    return up;
  }
  template <class D>
  HWY_INLINE VecOf<D> linear_grad(D, VecOf<D>, VecOf<D> grad) const {
    return grad;
  }
};

/// act(x) and, where wanted, act'(x). The compiler drops what a caller does not use.
struct Relu : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    using A = hn::TFromD<D>;
    const auto positive = hn::Gt(x, hn::Zero(d));
    value = hn::Max(hn::Zero(d), x);  // in this order a NaN stays
    slope = hn::IfThenElseZero(positive, hn::Set(d, A{1}));
  }
};

struct Relu2 : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    const auto positive = hn::Max(hn::Zero(d), x);
    value = hn::Mul(positive, positive);
    slope = hn::Add(positive, positive);
  }
};

struct GeluErf : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    VecOf<D> distribution;
    VecOf<D> density;
    normal_distribution(d, x, distribution, density);
    value = hn::Mul(x, distribution);
    slope = hn::MulAdd(x, density, distribution);
  }
};

/// With u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u)/2 = logistic(2u).
struct GeluTanh : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    using A = hn::TFromD<D>;
    constexpr double kTwoRootTwoOverPi = 1.59576912160573071175978;
    const auto bound = hn::Set(d, A{30});  // there the function is flat; keeps x^3 finite
    const auto inside = hn::Max(hn::Neg(bound), hn::Min(bound, x));
    const auto square = hn::Mul(inside, inside);
    const auto scale = hn::Set(d, static_cast<A>(kTwoRootTwoOverPi));
    const auto cubic = hn::Set(d, static_cast<A>(kTwoRootTwoOverPi * 0.044715));
    const auto two_u = hn::Mul(inside, hn::MulAdd(cubic, square, scale));
    VecOf<D> s;
    VecOf<D> r;
    logistic(d, two_u, s, r);
    value = hn::Mul(x, s);
    const auto two_u_slope = hn::MulAdd(hn::Mul(cubic, hn::Set(d, A{3})), square, scale);
    slope = hn::MulAdd(hn::Mul(hn::Mul(inside, two_u_slope), s), r, s);
  }
};

/// x * sigmoid(kFactor / 1000 * x): silu, and the quick GELU.
template <int kFactor>
struct Swish : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    const auto factor = hn::Set(d, static_cast<hn::TFromD<D>>(kFactor / 1000.0));
    VecOf<D> s;
    VecOf<D> r;
    logistic(d, kFactor == 1000 ? x : hn::Mul(factor, x), s, r);
    value = hn::Mul(x, s);
    slope = hn::MulAdd(value, kFactor == 1000 ? r : hn::Mul(factor, r), s);
  }
};
using Silu = Swish<1000>;
using QuickGelu = Swish<1702>;

struct Sigmoid : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    VecOf<D> r;
    logistic(d, x, value, r);
    value = hn::IfThenElse(hn::Eq(x, x), value, x);
    slope = hn::Mul(value, r);
  }
};

struct Identity : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    value = x;
    slope = hn::Set(d, hn::TFromD<D>{1});
  }
};

template <typename F>
void with_kind(Activation kind, const F& f) {
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

/// Any kind behind the clamp and the offset. Comparisons stand so that a NaN stays.
struct Limited {
  Activation kind;
  double clamp, offset;

  template <class D>
  HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) const {
    const auto bound = hn::Set(d, static_cast<hn::TFromD<D>>(clamp));
    const auto beyond = hn::Gt(x, bound);
    with_kind(kind,
              [&](auto act) ASHLAR_SIMD { decltype(act)::apply(d, hn::IfThenElse(beyond, bound, x), value, slope); });
    slope = hn::IfThenZeroElse(beyond, slope);
  }
  template <class D>
  HWY_INLINE VecOf<D> linear(D d, VecOf<D> up) const {
    const auto bound = hn::Set(d, static_cast<hn::TFromD<D>>(clamp));
    const auto below = hn::IfThenElse(hn::Gt(up, bound), bound, up);
    const auto inside = hn::IfThenElse(hn::Lt(below, hn::Neg(bound)), hn::Neg(bound), below);
    return hn::Add(inside, hn::Set(d, static_cast<hn::TFromD<D>>(offset)));
  }
  template <class D>
  HWY_INLINE VecOf<D> linear_grad(D d, VecOf<D> up, VecOf<D> grad) const {
    return hn::IfThenZeroElse(hn::Gt(hn::Abs(up), hn::Set(d, static_cast<hn::TFromD<D>>(clamp))), grad);
  }
};

/// f(what `args` ask for).
template <class Args, typename F>
void with_activation(const Args& args, const F& f) {
  if (args.limited()) {
    return f(
        Limited{args.kind, args.clamp == 0 ? std::numeric_limits<double>::infinity() : args.clamp, args.linear_offset});
  }
  with_kind(args.kind, f);
}

template <typename T, class Act>
void forward_row(const Act& act, const T* x, const T* up, T* y, int64_t cols) {
  const TagOf<T> d;
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    VecOf<TagOf<T>> value;
    VecOf<TagOf<T>> slope;
    act.apply(d, load(d, x + c, part), value, slope);
    if (up != nullptr) value = hn::Mul(value, act.linear(d, load(d, up + c, part)));
    store(d, value, y + c, part);
  });
}

template <typename T, class Act>
void backward_row(const Act& act, const T* dy, const T* x, const T* up, T* dx, T* dup, bool accumulate, int64_t cols) {
  const TagOf<T> d;
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    VecOf<TagOf<T>> value;
    VecOf<TagOf<T>> slope;
    act.apply(d, load(d, x + c, part), value, slope);
    const auto dy_v = load(d, dy + c, part);
    auto dx_v = hn::Mul(dy_v, slope);
    if (up != nullptr) {
      const auto up_v = load(d, up + c, part);
      dx_v = hn::Mul(dx_v, act.linear(d, up_v));
      auto dup_v = act.linear_grad(d, up_v, hn::Mul(dy_v, value));
      if (accumulate) dup_v = hn::Add(load(d, dup + c, part), dup_v);
      store(d, dup_v, dup + c, part);
    }
    if (accumulate) dx_v = hn::Add(load(d, dx + c, part), dx_v);
    store(d, dx_v, dx + c, part);
  });
}

void activation_forward_impl(const ActivationForward& a, int threads) {
  with_storage("activation_forward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    with_activation(a, [&](const auto& act) {
      for_row_pieces(threads, a.x.rows, a.x.cols, a.x.contiguous() && a.up.contiguous() && a.y.contiguous(),
                     kExpensiveGrain, [&](int64_t n, int64_t c, int64_t count) {
                       prefetch_row(a.x, n + 1);
                       prefetch_row(a.up, n + 1);
                       forward_row(act, row_of<T>(a.x, n) + c, a.up ? row_of<T>(a.up, n) + c : nullptr,
                                   row_of<T>(a.y, n) + c, count);
                     });
    });
  });
}

void activation_backward_impl(const ActivationBackward& a, int threads) {
  with_storage("activation_backward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const bool contiguous =
        a.dy.contiguous() && a.x.contiguous() && a.up.contiguous() && a.dx.contiguous() && a.dup.contiguous();
    with_activation(a, [&](const auto& act) {
      for_row_pieces(threads, a.x.rows, a.x.cols, contiguous, kExpensiveGrain,
                     [&](int64_t n, int64_t c, int64_t count) {
                       prefetch_row(a.x, n + 1);
                       prefetch_row(a.up, n + 1);
                       prefetch_row(a.dx, n + 1);
                       prefetch_row(a.dup, n + 1);
                       backward_row(act, row_of<T>(a.dy, n) + c, row_of<T>(a.x, n) + c,
                                    a.up ? row_of<T>(a.up, n) + c : nullptr, row_of<T>(a.dx, n) + c,
                                    a.up ? row_of<T>(a.dup, n) + c : nullptr, a.mode == GradMode::kAccumulate, count);
                     });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
void CpuBackend::launch(const ActivationForward& args, Stream&) {
  ASHLAR_FOR_ISA(info_.isa, activation_forward_impl)(args, threads_);
}

void CpuBackend::launch(const ActivationBackward& args, Stream&) {
  ASHLAR_FOR_ISA(info_.isa, activation_backward_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
