#pragma once

#include <cstdint>
#include <span>

#include "core/base/enum_names.h"

/// Every update rule: RULE(its enumerator, its name in configurations, the function that returns its Rule).
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

/// A rule and its hyper-parameters. The values here are AdamW's defaults.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;             ///< 0: not used by the rule
  double weight_decay = 0.1;     ///< decoupled: a step subtracts lr * weight_decay * w from each decaying weight
  bool decay_embeddings = true;  ///< token and position tables; matrices always decay, norms and biases never
  bool operator==(const OptimizerOptions&) const = default;
};

/// Lion's defaults.
inline constexpr OptimizerOptions kLionDefaults{.kind = OptimizerKind::kLion, .beta1 = 0.9, .beta2 = 0.99, .eps = 0};

}  // namespace ashlar::optim
