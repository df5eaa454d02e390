// Activations, plain and gated, and their gradients.
// fp32 moves 8 to 12 B per element forward and 12 to 20 B backward. With an exponential and a division (about 25 flops)
// per element, the time is near the memory bound with AVX-512 and longer with AVX2. Threads process contiguous rows; a
// contiguous matrix is processed as one long row.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_ACTIVATION_ONCE
#define ASHLAR_KERNELS_CPU_ACTIVATION_ONCE
namespace ashlar::cpu {
/// Number of rows per partial sum of the gradients of xIELU's scalars. It depends only on the width of the rows.
inline int64_t xielu_rows(int64_t cols) { return rows_grain(cols, kExpensiveGrain); }
inline int64_t xielu_blocks(const ConstView& x) { return (x.rows + xielu_rows(x.cols) - 1) / xielu_rows(x.cols); }
}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Base class of activations without clamp and offset. It leaves the linear half (up) of a gated activation unchanged.
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

/// Each activation sets value = act(x) and slope = act'(x); the compiler removes a result that is not used.
struct Relu : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    using A = hn::TFromD<D>;
    const auto positive = hn::Gt(x, hn::Zero(d));
    value = hn::Max(hn::Zero(d), x);  // this order of operands keeps NaN
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

/// Uses (1 + tanh u)/2 = logistic(2u), where u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh : Plain {
  template <class D>
  static HWY_INLINE void apply(D d, VecOf<D> x, VecOf<D>& value, VecOf<D>& slope) {
    using A = hn::TFromD<D>;
    constexpr double kTwoRootTwoOverPi = 1.59576912160573071175978;
    const auto bound = hn::Set(d, A{30});  // s is constant for |x| > 30; the bound keeps x^3 finite
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

/// x * sigmoid(kFactor / 1000 * x): SiLU and quick GELU.
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
    case Activation::kXielu: return;  // has learned scalars and separate kernels
  }
}

/// An activation of any kind with clamp and offset. Comparisons are ordered so that NaN propagates.
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

/// Calls f with the activation of `args`.
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

/// The activation xIELU: f(x) = p x^2 + beta x for x > 0, otherwise f(x) = n (expm1(min(x, eps)) - x) + beta x.
/// Comparisons are ordered so that NaN propagates.
template <typename A>
struct Xielu {
  A p, n;              ///< p = softplus(alpha_p), n = beta + softplus(alpha_n)
  A p_slope, n_slope;  ///< dp / dalpha_p and dn / dalpha_n

  static Xielu of(A alpha_p, A alpha_n) {
    const auto softplus = [](A a) { return std::max(a, A{0}) + std::log1p(std::exp(-std::abs(a))); };
    const auto logistic = [](A a) { return A{1} / (A{1} + std::exp(-a)); };
    return {softplus(alpha_p), static_cast<A>(kXieluBeta) + softplus(alpha_n), logistic(alpha_p), logistic(alpha_n)};
  }

  /// Returns expm1(min(x, eps)).
  template <class D>
  static HWY_INLINE VecOf<D> below(D d, VecOf<D> x) {
    const auto eps = hn::Set(d, static_cast<A>(kXieluEps));
    return hn::Expm1(d, hn::IfThenElse(hn::Lt(x, eps), x, eps));
  }
  template <class D>
  HWY_INLINE VecOf<D> value(D d, VecOf<D> x) const {
    const auto beta = hn::Set(d, static_cast<A>(kXieluBeta));
    const auto above = hn::Mul(hn::Mul(hn::Set(d, p), x), x);
    const auto under = hn::Mul(hn::Set(d, n), hn::Sub(below(d, x), x));
    return hn::MulAdd(beta, x, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, under));
  }
  /// Returns dy f'(x), and adds the contributions of this vector to the sums for dalpha_p and dalpha_n.
  template <class D>
  HWY_INLINE VecOf<D> backward(D d, VecOf<D> x, VecOf<D> dy, VecOf<D>& sum_p, VecOf<D>& sum_n) const {
    const auto beta = hn::Set(d, static_cast<A>(kXieluBeta));
    const auto positive = hn::Gt(x, hn::Zero(d));
    const auto e = below(d, x);
    sum_p = hn::Add(sum_p, hn::IfThenElseZero(positive, hn::Mul(dy, hn::Mul(x, x))));
    sum_n = hn::Add(sum_n, hn::IfThenZeroElse(positive, hn::Mul(dy, hn::Sub(e, x))));
    const auto above = hn::Mul(hn::Set(d, p + p), x);
    // Above eps, expm1(min(x, eps)) is constant, so its derivative is 0.
    const auto curve = hn::IfThenElse(hn::Lt(x, hn::Set(d, static_cast<A>(kXieluEps))), e, hn::Set(d, A{-1}));
    return hn::Mul(dy, hn::Add(beta, hn::IfThenElse(positive, above, hn::Mul(hn::Set(d, n), curve))));
  }
};

template <typename T, typename A = hn::TFromD<TagOf<T>>>
Xielu<A> xielu_of(const ConstView& scalars) {
  const T* alpha = static_cast<const T*>(scalars.data);
  return Xielu<A>::of(static_cast<A>(widen(alpha[0])), static_cast<A>(widen(alpha[1])));
}

void xielu_forward_impl(const ActivationForward& a, Threads& threads) {
  with_storage("activation_forward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto act = xielu_of<T>(a.scalars);
    for_row_pieces(threads, {a.x, a.y}, kExpensiveGrain, [&](int64_t n, int64_t c, int64_t count) {
      const T* x = row_of<T>(a.x, n) + c;
      T* y = row_of<T>(a.y, n) + c;
      const TagOf<T> d;
      for_lanes(d, count,
                [&](int64_t i, auto part) ASHLAR_SIMD { store(d, act.value(d, load(d, x + i, part)), y + i, part); });
    });
  });
}

/// `partials` is scratch memory for [xielu_blocks][2] numbers of the accumulate dtype.
void xielu_backward_impl(const ActivationBackward& a, Threads& threads, void* partials) {
  with_storage("activation_backward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const auto act = xielu_of<T>(a.scalars);
    const bool accumulate = a.mode == GradMode::kAccumulate;
    const int64_t block = xielu_rows(a.x.cols), blocks = xielu_blocks(a.x);
    A* const sums = static_cast<A*>(partials);
    // 1. dx, and the partial sums of each block of rows
    parallel_for(threads, blocks, 1, [&](int64_t first_block, int64_t last_block) {
      for (int64_t b = first_block; b < last_block; ++b) {
        A total_p = 0, total_n = 0;
        for (int64_t row = b * block; row < std::min(a.x.rows, (b + 1) * block); ++row) {
          const T* x = row_of<T>(a.x, row);
          const T* dy = row_of<T>(a.dy, row);
          T* dx = row_of<T>(a.dx, row);
          const TagOf<T> d;
          A sum_p, sum_n;
          sum_lanes_twice(d, a.x.cols, sum_p, sum_n,
                          [&](VecOf<TagOf<T>>& p, VecOf<TagOf<T>>& n, int64_t c, auto part) ASHLAR_SIMD {
                            auto dx_v = act.backward(d, load(d, x + c, part), load(d, dy + c, part), p, n);
                            if (accumulate) dx_v = hn::Add(load(d, dx + c, part), dx_v);
                            store(d, dx_v, dx + c, part);
                          });
          total_p += sum_p;
          total_n += sum_n;
        }
        sums[2 * b] = total_p;
        sums[2 * b + 1] = total_n;
      }
    });
    // 2. the partial sums, added in order
    if (!a.dscalars || a.scalars_mode == GradMode::kSkip) return;
    double total_p = 0, total_n = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      total_p += static_cast<double>(sums[2 * b]);
      total_n += static_cast<double>(sums[2 * b + 1]);
    }
    A* const out = static_cast<A*>(a.dscalars.data);
    const bool add = a.scalars_mode == GradMode::kAccumulate;
    out[0] = (add ? out[0] : A{0}) + static_cast<A>(total_p) * act.p_slope;
    out[1] = (add ? out[1] : A{0}) + static_cast<A>(total_n) * act.n_slope;
  });
}

void activation_forward_impl(const ActivationForward& a, Threads& threads) {
  with_storage("activation_forward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    with_activation(a, [&](const auto& act) {
      for_row_pieces(threads, {a.x, a.up, a.y}, kExpensiveGrain, [&](int64_t n, int64_t c, int64_t count) {
        prefetch_row(a.x, n + 1);
        prefetch_row(a.up, n + 1);
        forward_row(act, row_of<T>(a.x, n) + c, a.up ? row_of<T>(a.up, n) + c : nullptr, row_of<T>(a.y, n) + c, count);
      });
    });
  });
}

void activation_backward_impl(const ActivationBackward& a, Threads& threads) {
  with_storage("activation_backward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    with_activation(a, [&](const auto& act) {
      for_row_pieces(threads, {a.x, a.dy, a.up, a.dx, a.dup}, kExpensiveGrain,
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
  if (args.kind == Activation::kXielu) return ASHLAR_FOR_ISA(info_.isa, xielu_forward_impl)(args, threads_);
  ASHLAR_FOR_ISA(info_.isa, activation_forward_impl)(args, threads_);
}

void CpuBackend::launch(const ActivationBackward& args, Stream&) {
  if (args.kind == Activation::kXielu) {
    const ScopedBlock partials(workspace(), xielu_blocks(args.x) * 2 * size_of(accumulate_dtype(args.x.dtype)));
    return ASHLAR_FOR_ISA(info_.isa, xielu_backward_impl)(args, threads_, partials.data());
  }
  ASHLAR_FOR_ISA(info_.isa, activation_backward_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
