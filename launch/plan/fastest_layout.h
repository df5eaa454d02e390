#pragma once

#include <functional>
#include <optional>

#include "launch/plan/planner.h"

namespace ashlar::plan {

/// Resolves a configuration with the choice's overrides for its number of ranks; throws the ConfigError of an illegal
/// choice.
using ResolveChoice = std::function<config::RunConfig(const Choice& choice)>;

struct LayoutRequest {
  int64_t ranks = 1;
  bool experts = false;  ///< the model has experts, which ranks may divide
  const Target& target;
  int64_t capacity = 0;           ///< bytes that the plan of a rank may need; 0: no limit
  int64_t most_tokens = 1 << 14;  ///< of a micro-batch of more than one sequence
  int64_t data_bytes = 0, program_bytes = 0;
  bool any = false;  ///< not the fastest: any of the meshes with the least state a rank, if one of them fits
};

struct LayoutResult {
  std::optional<Advice> best;      ///< the fastest layout that fits
  std::optional<Planned> nearest;  ///< if none fits: the one that needs least
};

/// Returns the fastest of all layouts that fit: meshes of the ranks, micro-batches of powers of two that divide a
/// replica's batch, recomputation. It ranks as ranked_meshes() does, but plans the memory only of layouts that can
/// still be the best, so that it takes seconds where that takes minutes. A pipeline must be 3% faster than none, and
/// tensor parallelism 1%, because both leave less freedom to change the configuration. Without a device there are no
/// times: then it returns the mesh with the fewest tensor ranks and stages that fits, with little recomputation and
/// large micro-batches.
LayoutResult fastest_layout(const LayoutRequest& request, const ResolveChoice& resolve);

}  // namespace ashlar::plan
