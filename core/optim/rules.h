#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/enum_names.h"

/// Every update rule of the system: RULE(its enumerator, its word in configurations, the function that tells of it).
#define ASHLAR_UPDATE_RULES(RULE) \
  RULE(kAdamW, "adamw", adamw)    \
  RULE(kLion, "lion", lion)

namespace ashlar {
struct Ctx;
}
namespace ashlar::nn {
class FlatRanges;
class ParameterStore;
}  // namespace ashlar::nn

namespace ashlar::optim {

class Optimizer;

#define ASHLAR_KIND(kind, word, rule) kind,
enum class OptimizerKind : uint8_t { ASHLAR_UPDATE_RULES(ASHLAR_KIND) };
#undef ASHLAR_KIND
#define ASHLAR_NAME(kind, word, rule) {OptimizerKind::kind, word},
inline constexpr EnumName<OptimizerKind> kOptimizerKindNames[] = {ASHLAR_UPDATE_RULES(ASHLAR_NAME)};
#undef ASHLAR_NAME
constexpr std::span<const EnumName<OptimizerKind>> names_of(OptimizerKind) { return kOptimizerKindNames; }
using ashlar::name_of;

/// A rule and its hyper-parameters. The values here are AdamW's defaults, and stand nowhere else; those of another rule
/// are in its Rule.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;             ///< 0: the rule has none
  double weight_decay = 0.1;     ///< decoupled: a step takes lr * weight_decay * w off each weight that decays
  bool decay_embeddings = true;  ///< token and position tables; matrices always decay, norms and biases never
  bool operator==(const OptimizerOptions&) const = default;
};

/// A tensor that a rule keeps of each weight, besides the master weights.
struct StateName {
  std::string_view suffix;       ///< in checkpoints: "m" is NAME.m
  std::string_view description;  ///< "the ... of embed.tokens.weight": "first moments"
};

/// How the replicas of a model may divide the state of a rule.
enum class Cut : uint8_t {
  kElement,  ///< anywhere: each weight is updated from its own gradient and state
  kTensor,   ///< between tensors: the rule sees a whole matrix at once
};

/// What is known of a rule without an optimizer: plans, configurations and checkpoints ask here.
struct Rule {
  OptimizerOptions defaults;
  std::span<const StateName> state;
  Cut cut = Cut::kElement;
  std::unique_ptr<Optimizer> (*make)(const Ctx&, nn::ParameterStore&, const OptimizerOptions&, nn::FlatRanges);
};

#define ASHLAR_RULE(kind, word, rule) const Rule& rule();
ASHLAR_UPDATE_RULES(ASHLAR_RULE)
#undef ASHLAR_RULE
const Rule& rule_of(OptimizerKind kind);

}  // namespace ashlar::optim
