#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

namespace ashlar {

struct Ctx;
struct Var;
struct Weight;

/// What a value is along the tensor axis: the group of ranks that hold the slices of one layer. Known on one rank too,
/// where nothing is communicated, so that a reduction that is missing, doubled or exchanged is a Bug on any mesh.
/// Source: the types of JAX's shard_map (varying and invariant values).
enum class Placement : uint8_t {
  kInvariant,     ///< the same value, the same gradient
  kReplicated,    ///< the same value; each rank has a part of the gradient's sum
  kPartialSum,    ///< each rank has a part of the value's sum; the same gradient
  kRowsSplit,     ///< each rank has rows of its own
  kColumnsSplit,  ///< each rank has columns of its own
};
const char* name_of(Placement placement);  ///< "invariant", "replicated", "partial sum", "rows split", "columns split"

/// Which op made a value, and what it made of it.
struct Made {
  const char* op = "an input";
  Placement placement = Placement::kInvariant;
};

/// What an op makes of an input that it takes.
struct Rule {
  Placement takes, gives;
};

/// An op's line: what its result is, by the rule that takes x. A Bug that names the op and the one that made x when
/// none does. The gradient of a weight is a sum over rows: where each rank has rows of its own, or a part of each row's
/// sum, it must be partial over the tensor group, and otherwise not. That is looked at while recording; null weights
/// are absent ones.
Made place(const Ctx& ctx, const char* op, const Var& x, std::initializer_list<Rule> rules,
           std::initializer_list<const Weight*> weights = {});
/// A further input of an op, which must be as the first one.
void place_alike(const char* op, const Var& first, const Var& other);

}  // namespace ashlar
