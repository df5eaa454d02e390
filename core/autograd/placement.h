#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/base/enum_names.h"

namespace ashlar {

struct Ctx;
struct Var;
struct Weight;

/// Placement of a value over the tensor axis, i.e. over the ranks that hold the slices of one layer. It is also tracked
/// on a single rank, where there is no communication, so that a missing, duplicated or swapped collective is a Bug on
/// any mesh. Source: the types of JAX's shard_map (varying and invariant values).
enum class Placement : uint8_t {
  kInvariant,     ///< the same value and the same complete gradient (DTensor's Replicate)
  kPartialGrad,   ///< the same value, but a partial gradient on each rank, to be summed
  kPartialSum,    ///< a partial value on each rank, to be summed; the same gradient (DTensor's Partial)
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

/// A rule of an op: the placement of an input that it accepts, and the placement of its output.
struct Rule {
  Placement input, output;
};

/// Finds the rule for the placement of x, and returns the info of the op's result. If no rule matches, throws a Bug
/// that names the op and the producer of x. While recording, also checks the weights (null: absent). The gradient of a
/// weight is a sum over rows, so it must be partial over the tensor group if x is sharded by rows or is a partial sum,
/// and must not be partial otherwise.
ValueInfo place(const Ctx& ctx, const char* op, const Var& x, std::initializer_list<Rule> rules,
                std::initializer_list<const Weight*> weights = {});
/// Checks a further input of an op, whose placement must equal that of the first one.
void place_alike(const char* op, const Var& first, const Var& other);

}  // namespace ashlar
