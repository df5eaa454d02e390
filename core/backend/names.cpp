#include "core/backend/activation.h"
#include "core/backend/norm.h"
#include "core/backend/rope.h"

namespace ashlar {

const char* name_of(NormType type) { return type == NormType::kLayerNorm ? "layernorm" : "rmsnorm"; }

const char* name_of(RopeStyle style) { return style == RopeStyle::kHalf ? "half" : "interleaved"; }

const char* name_of(Activation kind) {
  switch (kind) {
    case Activation::kRelu: return "relu";
    case Activation::kRelu2: return "relu2";
    case Activation::kGeluErf: return "gelu_erf";
    case Activation::kGeluTanh: return "gelu_tanh";
    case Activation::kQuickGelu: return "quick_gelu";
    case Activation::kSilu: return "silu";
  }
  throw Bug("[activation] unknown kind");
}

}  // namespace ashlar
