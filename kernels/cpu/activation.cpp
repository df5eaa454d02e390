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

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// act(x) and, where wanted, act'(x). The compiler drops what a caller does not use.
struct Relu {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    using A = hn::TFromD<D>;
    const auto positive = hn::Gt(x, hn::Zero(d));
    value = hn::Max(hn::Zero(d), x);  // in this order a NaN stays
    slope = hn::IfThenElseZero(positive, hn::Set(d, A{1}));
  }
};

struct GeluErf {
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
struct GeluTanh {
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

struct Silu {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    VecOf<D> s;
    VecOf<D> r;
    logistic(d, x, s, r);
    value = hn::Mul(x, s);
    slope = hn::MulAdd(value, r, s);
  }
};

template <typename F>
void with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::kRelu: return f(Relu());
    case Activation::kGeluErf: return f(GeluErf());
    case Activation::kGeluTanh: return f(GeluTanh());
    case Activation::kSilu: return f(Silu());
    default: ASHLAR_CHECK(false, "activation kind ", static_cast<int>(kind), " passed the check of supported kinds");
  }
}

template <typename T, class Act>
void forward_row(const T* x, const T* up, T* y, int64_t cols) {
  const TagOf<T> d;
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    VecOf<TagOf<T>> value;
    VecOf<TagOf<T>> slope;
    Act::apply(d, load(d, x + c, part), value, slope);
    if (up != nullptr) value = hn::Mul(value, load(d, up + c, part));
    store(d, value, y + c, part);
  });
}

template <typename T, class Act>
void backward_row(const T* dy, const T* x, const T* up, T* dx, T* dup, bool accumulate, int64_t cols) {
  const TagOf<T> d;
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    VecOf<TagOf<T>> value;
    VecOf<TagOf<T>> slope;
    Act::apply(d, load(d, x + c, part), value, slope);
    const auto dy_v = load(d, dy + c, part);
    auto dx_v = hn::Mul(dy_v, slope);
    if (up != nullptr) {
      dx_v = hn::Mul(dx_v, load(d, up + c, part));
      auto dup_v = hn::Mul(dy_v, value);
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
    with_activation(a.kind, [&](auto act) {
      for_row_pieces(threads, a.x.rows, a.x.cols, a.x.contiguous() && a.up.contiguous() && a.y.contiguous(),
                     kExpensiveGrain, [&](int64_t n, int64_t c, int64_t count) {
                       prefetch_row(a.x, n + 1);
                       prefetch_row(a.up, n + 1);
                       forward_row<T, decltype(act)>(row_of<T>(a.x, n) + c, a.up ? row_of<T>(a.up, n) + c : nullptr,
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
    with_activation(a.kind, [&](auto act) {
      for_row_pieces(threads, a.x.rows, a.x.cols, contiguous, kExpensiveGrain,
                     [&](int64_t n, int64_t c, int64_t count) {
                       prefetch_row(a.x, n + 1);
                       prefetch_row(a.up, n + 1);
                       prefetch_row(a.dx, n + 1);
                       prefetch_row(a.dup, n + 1);
                       backward_row<T, decltype(act)>(row_of<T>(a.dy, n) + c, row_of<T>(a.x, n) + c,
                                                      a.up ? row_of<T>(a.up, n) + c : nullptr, row_of<T>(a.dx, n) + c,
                                                      a.up ? row_of<T>(a.dup, n) + c : nullptr,
                                                      a.mode == GradMode::kAccumulate, count);
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
