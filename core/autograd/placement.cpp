#include "core/autograd/placement.h"

#include "core/autograd/ctx.h"
#include "core/autograd/var.h"
#include "core/autograd/weight.h"

namespace ashlar {

namespace {

[[noreturn]] void refuse(const char* op, const Var& x, const std::string& expected) {
  throw Bug(str_cat("[", op, "] expected ", expected, ", got placement ", name_of(x.info.placement), " from ",
                    x.info.op, "; check the tensor-parallel enter() and exit() calls between ", x.info.op, " and ", op,
                    ": one is missing, duplicated or swapped"));
}

}  // namespace

ValueInfo place(const Ctx& ctx, const char* op, const Var& x, std::initializer_list<Rule> rules,
                std::initializer_list<const Weight*> weights) {
  const Rule* found = nullptr;
  for (const Rule& rule : rules) {
    if (rule.input == x.info.placement) found = &rule;
  }
  if (found == nullptr) {
    std::string expected;
    for (const Rule& rule : rules) expected += (expected.empty() ? "" : " or ") + std::string(name_of(rule.input));
    refuse(op, x, "placement " + expected);
  }
  for (const Weight* weight : weights) {
    if (ctx.tape == nullptr || weight == nullptr) continue;
    const bool own_rows = x.info.placement == Placement::kRowsSplit || x.info.placement == Placement::kPartialSum;
    if (own_rows == weight->grad_partial) continue;
    throw Bug(str_cat("[", op, "] expected a weight whose gradient is ", own_rows ? "summed" : "not summed",
                      " over the tensor group, since the input from ", x.info.op, " has placement ",
                      name_of(x.info.placement), own_rows ? ", got one that is not; " : ", got one that is; ",
                      own_rows ? "add Axis::kTensor to" : "remove Axis::kTensor from",
                      " grad_summed_over where its sharded tensor is created"));
  }
  return {.op = op, .placement = found->output};
}

void place_alike(const char* op, const Var& first, const Var& other) {
  if (other.info.placement == first.info.placement) return;
  refuse(
      op, other,
      str_cat("placement ", name_of(first.info.placement), ", the placement of the first input from ", first.info.op));
}

}  // namespace ashlar
