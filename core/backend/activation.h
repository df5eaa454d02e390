#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class Activation : uint8_t {
  kRelu,
  kRelu2,
  kGeluErf,
  kGeluTanh,
  kQuickGelu,
  kSilu,
  kSigmoid,
  kIdentity,
  kXielu,
};
constexpr auto names_of(Activation) {
  return enum_names<Activation>("relu", "relu2", "gelu_erf", "gelu_tanh", "quick_gelu", "silu", "sigmoid", "identity",
                                "xielu");
}

/// The constants beta and eps of xielu (formula at ActivationForward).
inline constexpr double kXieluBeta = 0.5;
inline constexpr double kXieluEps = -1e-6;

/// Without `up`: y = act(x). With `up`: y = act(gate) * linear, where gate = min(x, clamp) and linear = min(max(up,
/// -clamp), clamp) + linear_offset (phi-3-small); without a clamp, gate = x and linear = up + linear_offset. Every view
/// has its own stride, so x and up may be column slices of one matrix or of two. A clamp or an offset without `up`
/// throws a Bug. act(x) is:
///   relu        max(x, 0)
///   relu2       max(x, 0)^2
///   gelu_erf    x/2 * (1 + erf(x / sqrt(2)))
///   gelu_tanh   x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
///   quick_gelu  x * sigmoid(1.702 x)
///   silu        x * sigmoid(x)
///   sigmoid     1 / (1 + exp(-x))
///   identity    x
///   xielu       p x^2 + beta x if x > 0, else n (expm1(min(x, eps)) - x) + beta x, where p = softplus(alpha_p) and
///               n = beta + softplus(alpha_n) with the two learned `scalars` {alpha_p, alpha_n}; never with `up`
/// Source of xielu: Huang & Schlag 2024 (arXiv:2411.13010).
struct ActivationForward {
  ConstView x;          ///< [N, F] storage dtype, read
  ConstView up;         ///< [N, F] storage dtype, read, or absent
  ConstView scalars{};  ///< [2] storage dtype, {alpha_p, alpha_n} of xielu; absent for all other kinds
  MutView y;            ///< [N, F] storage dtype, written
  Activation kind = Activation::kSilu;
  double clamp = 0;  ///< 0 = no clamp
  double linear_offset = 0;
  bool limited() const { return clamp != 0 || linear_offset != 0; }

  auto views() const { return std::tie(x, up, scalars, y); }
};

/// Gradients of ActivationForward. Without `up`: dx (+)= dy * act'(x). With `up`: dx (+)= dy * act'(gate) * linear
/// where x <= clamp, else 0; dup (+)= dy * act(gate) where |up| <= clamp, else 0; without a clamp, nothing is set to 0.
/// dx and dup may be column slices of one matrix; with kOverwrite, dx may be x and dup may be up. For xielu, dscalars =
/// {dalpha_p, dalpha_n}: dalpha_p (+)= sigmoid(alpha_p) * sum of dy x^2 over x > 0, and dalpha_n (+)= sigmoid(alpha_n)
/// * sum of dy (expm1(min(x, eps)) - x) over x <= 0. The sums have the same bits for any thread count.
struct ActivationBackward {
  ConstView dy;                          ///< [N, F] storage dtype
  ConstView x;                           ///< [N, F] storage dtype, as in ActivationForward
  ConstView up;                          ///< [N, F] storage dtype, as in ActivationForward, or absent
  ConstView scalars{};                   ///< [2] storage dtype, as in ActivationForward
  MutView dx;                            ///< [N, F] storage dtype, written or accumulated (mode)
  MutView dup;                           ///< [N, F] storage dtype, written or accumulated (mode); absent without up
  MutView dscalars{};                    ///< [2] accumulate dtype, written or accumulated (scalars_mode); or absent
  GradMode mode = GradMode::kOverwrite;  ///< mode of dx and dup
  GradMode scalars_mode = GradMode::kAccumulate;
  Activation kind = Activation::kSilu;
  double clamp = 0;
  double linear_offset = 0;
  bool limited() const { return clamp != 0 || linear_offset != 0; }

  auto views() const { return std::tie(dy, x, up, scalars, dx, dup, dscalars); }
};

}  // namespace ashlar
