#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/optim/optimizer_defaults.h"

namespace ashlar {
struct Ctx;
}
namespace ashlar::nn {
class FlatRanges;
class ParameterStore;
}  // namespace ashlar::nn

namespace ashlar::optim {

class Optimizer;

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
