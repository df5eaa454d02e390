#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/base/enum_names.h"

namespace ashlar {

struct Ctx;
struct Var;
struct Weight;

/// Placement of a value over the tensor axis, i.e. over the tensor-parallel ranks of one layer. Placements are tracked
/// even on a single rank, where there is no communication, so that a missing, duplicated or swapped collective throws a
/// Bug on any mesh. Source: the types of JAX's shard_map (varying and invariant values).
enum class Placement : uint8_t {
  kInvariant,     ///< every rank has the same value and the same complete gradient (DTensor's Replicate)
  kPartialGrad,   ///< every rank has the same value; the gradient is the sum of the ranks' partial gradients
  kPartialSum,    ///< the value is the sum of the ranks' partial values; every rank has the same gradient (DTensor's
                  ///< Partial)
  kRowsSplit,     ///< rows sharded over the ranks (DTensor's Shard(0))
  kColumnsSplit,  ///< columns sharded over the ranks (DTensor's Shard(1))
};
constexpr auto names_of(Placement) {
  return enum_names<Placement>("invariant", "partial gradient", "partial sum", "rows split", "columns split");
}

/// The op that produced a value, and the value's placement.
struct ValueInfo {
  const char* op = "an input";
  Placement placement = Placement::kInvariant;
};

/// One combination of placements that an op supports: if its input has the placement `input`, its result has `output`.
struct Rule {
  Placement input, output;
};

/// Finds the rule whose `input` is the placement of x, and returns the ValueInfo of the op's result. If no rule
/// matches, throws a Bug that names the op and the op that produced x. If ctx has a tape, also throws a Bug if one of
/// `weights` (null entries are skipped) has the wrong Weight::grad_partial. grad_partial must be true if x is
/// kRowsSplit or kPartialSum, since each tensor rank then computes the weight gradient from only its rows of x or only
/// its partial value of x. For other placements it must be false.
ValueInfo place(const Ctx& ctx, const char* op, const Var& x, std::initializer_list<Rule> rules,
                std::initializer_list<const Weight*> weights = {});
/// Throws a Bug unless `other`, a further input of the op, has the same placement as the first input.
void place_alike(const char* op, const Var& first, const Var& other);

}  // namespace ashlar
