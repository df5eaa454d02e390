#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class Activation : uint8_t { kRelu, kRelu2, kGeluErf, kGeluTanh, kQuickGelu, kSilu };
inline constexpr EnumName<Activation> kActivationNames[] = {
    {Activation::kRelu, "relu"},          {Activation::kRelu2, "relu2"},          {Activation::kGeluErf, "gelu_erf"},
    {Activation::kGeluTanh, "gelu_tanh"}, {Activation::kQuickGelu, "quick_gelu"}, {Activation::kSilu, "silu"}};
constexpr std::span<const EnumName<Activation>> names_of(Activation) { return kActivationNames; }

/// y = act(x) without `up`, y = act(x) * up with it (x is then the gate). Every view has a stride of its own: gate and
/// up may be column slices of one product's rows, or of two, in any order and with anything between them. gelu_tanh
/// x/2*(1+tanh(sqrt(2/pi)*(x+0.044715x^3))), gelu_erf x/2*(1+erf(x/sqrt2)), silu x*sigmoid(x). Not supported yet (an
/// input_error that names it): relu2, quick_gelu, a clamp, a linear offset.
struct ActivationForward {
  ConstView x;   ///< [N, F] storage dtype, read
  ConstView up;  ///< [N, F] storage dtype, read, or absent
  MutView y;     ///< [N, F] storage dtype, written
  Activation kind = Activation::kSilu;
  double clamp = 0;          ///< 0 = none
  double linear_offset = 0;  ///< added to up
};

/// dx (+)= dy * act'(x) [* up]; dup (+)= dy * act(x). Strides as in forward: dx and dup may be column slices of one
/// gradient.
struct ActivationBackward {
  ConstView dy;                          ///< [N, F] storage dtype
  ConstView x;                           ///< [N, F] as in forward
  ConstView up;                          ///< [N, F] or absent
  MutView dx;                            ///< [N, F] storage dtype, by mode
  MutView dup;                           ///< [N, F] storage dtype, by mode; absent without up
  GradMode mode = GradMode::kOverwrite;  ///< for both
  Activation kind = Activation::kSilu;
  double clamp = 0;
  double linear_offset = 0;
};

}  // namespace ashlar
