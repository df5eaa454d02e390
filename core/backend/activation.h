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

/// Constants of xielu.
inline constexpr double kXieluBeta = 0.5;
inline constexpr double kXieluEps = -1e-6;

/// Without `up`: y = act(x). With `up`: y = act(gate) * linear, where gate = min(x, clamp) and linear = min(max(up,
/// -clamp), clamp) + linear_offset (phi-3-small; without a clamp x and up are unchanged). Every view has its own
/// stride: gate and up may be column slices of one or two matrices. relu max(x,0), relu2 max(x,0)^2, gelu_tanh
/// x/2*(1+tanh(sqrt(2/pi)*(x+0.044715x^3))), gelu_erf x/2*(1+erf(x/sqrt2)), quick_gelu x*sigmoid(1.702x), silu
/// x*sigmoid(x), sigmoid 1/(1+exp(-x)), identity x. A clamp or an offset without `up` is a Bug.
/// xielu, with two learned scalars {alpha_p, alpha_n} and without `up`: x > 0: p x^2 + beta x, p = softplus(alpha_p);
/// else n (expm1(min(x, eps)) - x) + beta x, n = beta + softplus(alpha_n). Source: Huang & Schlag 2024
/// (arXiv:2411.13010).
struct ActivationForward {
  ConstView x;          ///< [N, F] storage dtype, read
  ConstView up;         ///< [N, F] storage dtype, read, or absent
  ConstView scalars{};  ///< [2] storage dtype, of xielu; absent of all others
  MutView y;            ///< [N, F] storage dtype, written
  Activation kind = Activation::kSilu;
  double clamp = 0;  ///< 0 = none
  double linear_offset = 0;
  bool limited() const { return clamp != 0 || linear_offset != 0; }

  auto views() const { return std::tie(x, up, scalars, y); }
};

/// dx (+)= dy * act'(gate) * linear where x <= clamp, else 0. dup (+)= dy * act(gate) where |up| <= clamp, else 0.
/// Strides as in forward: dx and dup may be column slices of one gradient. xielu: dalpha_p (+)= sigmoid(alpha_p) * sum
/// dy x^2 over x > 0, and dalpha_n (+)= sigmoid(alpha_n) * sum dy (expm1(min(x, eps)) - x) over the others, with the
/// same bits for any thread count.
struct ActivationBackward {
  ConstView dy;                          ///< [N, F] storage dtype
  ConstView x;                           ///< [N, F] as in forward
  ConstView up;                          ///< [N, F] or absent
  ConstView scalars{};                   ///< [2] as in forward
  MutView dx;                            ///< [N, F] storage dtype, by mode
  MutView dup;                           ///< [N, F] storage dtype, by mode; absent without up
  MutView dscalars{};                    ///< [2] accumulate dtype, by scalars_mode; or absent
  GradMode mode = GradMode::kOverwrite;  ///< mode of dx and dup
  GradMode scalars_mode = GradMode::kAccumulate;
  Activation kind = Activation::kSilu;
  double clamp = 0;
  double linear_offset = 0;
  bool limited() const { return clamp != 0 || linear_offset != 0; }

  auto views() const { return std::tie(dy, x, up, scalars, dx, dup, dscalars); }
};

}  // namespace ashlar
