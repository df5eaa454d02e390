#pragma once

#include <cstdint>
#include <span>

#include "core/base/enum_names.h"

/// Lists all update rules: RULE(enumerator, name in configurations, function that returns the Rule).
#define ASHLAR_UPDATE_RULES(RULE) \
  RULE(kAdamW, "adamw", adamw)    \
  RULE(kLion, "lion", lion)

namespace ashlar::optim {

#define ASHLAR_KIND(kind, word, rule) kind,
enum class OptimizerKind : uint8_t { ASHLAR_UPDATE_RULES(ASHLAR_KIND) };
#undef ASHLAR_KIND
#define ASHLAR_NAME(kind, word, rule) {OptimizerKind::kind, word},
inline constexpr EnumName<OptimizerKind> kOptimizerKindNames[] = {ASHLAR_UPDATE_RULES(ASHLAR_NAME)};
#undef ASHLAR_NAME
constexpr std::span<const EnumName<OptimizerKind>> names_of(OptimizerKind) { return kOptimizerKindNames; }
using ashlar::name_of;

/// The dtype of the state tensors of a rule.
enum class StateDType : uint8_t {
  kFloat32,   ///< as the master weights, which are fp64 if the weights are
  kBFloat16,  ///< stochastically rounded bf16 (ashlar::Update); the weights must not be fp64
};
constexpr auto names_of(StateDType) { return enum_names<StateDType>("fp32", "bf16"); }

/// The update rule and its hyper-parameters. The values here are AdamW's defaults.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;             ///< 0 for a rule that does not use it
  double weight_decay = 0.1;     ///< decoupled: a step subtracts lr * weight_decay * w from each decaying weight
  double expert_lr_scale = 1;    ///< factor on the learning rate of the matrices of routed experts
  bool decay_embeddings = true;  ///< true: token and position embeddings decay too; matrices always decay, norms and
                                 ///< biases never
  StateDType state_dtype = StateDType::kFloat32;
  uint32_t rounding_seed = 0;  ///< of bf16 state
  bool operator==(const OptimizerOptions&) const = default;
};

/// The default hyper-parameters of Lion.
inline constexpr OptimizerOptions kLionDefaults{.kind = OptimizerKind::kLion, .beta1 = 0.9, .beta2 = 0.99, .eps = 0};

}  // namespace ashlar::optim
