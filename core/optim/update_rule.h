#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/optim/update_rules.h"

namespace ashlar {
struct Ctx;
}
namespace ashlar::nn {
class FlatRanges;
class ParameterStore;
}  // namespace ashlar::nn

namespace ashlar::optim {

class Optimizer;

/// A state tensor that a rule has for each weight tensor, besides the master weights.
struct StateName {
  std::string_view suffix;       ///< name in checkpoints: the state "m" is stored as WEIGHT_NAME.m
  std::string_view description;  ///< for messages: "first moments" in "the first moments of embed.tokens.weight"
};

/// Where the state of a rule may be divided between replicas.
enum class ShardUnit : uint8_t {
  kElement,  ///< between any two elements: each element is updated from its own gradient and state
  kTensor,   ///< only between tensors, since the rule needs whole matrices
};

/// Properties of an update rule that are known without an Optimizer object, for shard plans, configurations and
/// checkpoints.
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
