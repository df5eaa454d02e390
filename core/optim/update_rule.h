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

/// A state tensor of a rule for each weight, besides the master weights.
struct StateName {
  std::string_view suffix;       ///< in checkpoints: "m" for NAME.m
  std::string_view description;  ///< "the ... of embed.tokens.weight": "first moments"
};

/// The unit by which the state of a rule may be sharded over replicas.
enum class ShardUnit : uint8_t {
  kElement,  ///< anywhere: each weight is updated from its own gradient and state
  kTensor,   ///< only between tensors: the rule needs whole matrices
};

/// Properties of a rule that are known without an optimizer object, for shard plans, configurations and checkpoints.
struct Rule {
  OptimizerOptions defaults;
  std::span<const StateName> state;
  ShardUnit shard_unit = ShardUnit::kElement;
  std::unique_ptr<Optimizer> (*make)(const Ctx&, nn::ParameterStore&, const OptimizerOptions&, nn::FlatRanges);
};

#define ASHLAR_RULE(kind, word, rule) const Rule& rule();
ASHLAR_UPDATE_RULES(ASHLAR_RULE)
#undef ASHLAR_RULE
const Rule& rule_of(OptimizerKind kind);

}  // namespace ashlar::optim
