#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "parallel/pipeline/transfer_plan.h"

namespace ashlar::pipeline {
namespace {

struct Slot {
  int64_t micro_batch, chunk;
};

bool interleaves(const ScheduleSpec& spec) { return spec.virtual_stages > 1; }

/// num_groups: number of groups of micro-batches. group_size: size of the first group, which is the largest.
int64_t num_groups(const ScheduleSpec& spec) {
  return interleaves(spec) ? std::max<int64_t>(1, spec.micro_batches / spec.stages) : 1;
}
int64_t group_size(const ScheduleSpec& spec) { return (spec.micro_batches + num_groups(spec) - 1) / num_groups(spec); }

/// Returns the order of a stage's forwards: one group of micro-batches after another, and each group through all chunks
/// in turn. The backwards have the same order, except that chunks run from last to first.
std::vector<Slot> forward_order(const ScheduleSpec& spec) {
  const int64_t groups = num_groups(spec), smaller = spec.micro_batches / groups;
  const int64_t larger_groups = spec.micro_batches % groups;
  std::vector<Slot> order;
  int64_t first = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t last = first + smaller + (group < larger_groups);
    for (int64_t chunk = 0; chunk < spec.virtual_stages; ++chunk) {
      for (int64_t m = first; m < last; ++m) order.push_back({m, chunk});
    }
    first = last;
  }
  return order;
}

/// Returns the number of warm-up forwards of a stage: the forwards before its first backward, except the one that the
/// steady state pairs with that backward.
int64_t warm_up(const ScheduleSpec& spec, int64_t stage) {
  const int64_t all = spec.micro_batches * spec.virtual_stages, behind = spec.stages - 1 - stage;
  switch (spec.kind) {
    case PipelineSchedule::kForwardOnly:
    case PipelineSchedule::kGpipe: return all;
    case PipelineSchedule::k1F1B:
    case PipelineSchedule::kZbH1: return std::min(behind, all);
    case PipelineSchedule::kInterleaved:
      return std::min(interleaves(spec) ? 2 * behind + (spec.virtual_stages - 1) * group_size(spec) : behind, all);
  }
  throw Bug("PipelineSchedule out of range");
}

/// Returns the computation of a stage, divided into rounds. In the interleaved schedule a round has a forward and a
/// backward. If these were separate rounds, neighbouring stages would be half a round apart. If a backward and a
/// forward take different times, the last stage and the first would then never be ready for a transfer at the same
/// time. The other schedules have no transfers from the last stage to the first, so they use separate rounds and need
/// half the warm-up.
std::vector<Round> compute_rounds(const ScheduleSpec& spec, int64_t stage) {
  const std::vector<Slot> order = forward_order(spec);
  const auto all = static_cast<int64_t>(order.size()), ahead = warm_up(spec, stage);
  const bool split = spec.kind == PipelineSchedule::kZbH1;
  const auto action = [&](ActionKind kind, int64_t i) {
    const Slot slot = order[static_cast<size_t>(i)];
    const bool mirrored = kind != ActionKind::kForward;
    return Action{.kind = kind,
                  .micro_batch = slot.micro_batch,
                  .chunk = mirrored ? spec.virtual_stages - 1 - slot.chunk : slot.chunk};
  };
  std::vector<Round> rounds;
  for (int64_t i = 0; i < ahead; ++i) rounds.push_back({action(ActionKind::kForward, i)});
  if (spec.kind == PipelineSchedule::kForwardOnly) return rounds;
  for (int64_t i = 0; i < all; ++i) {
    const Action backward = action(split ? ActionKind::kBackwardInput : ActionKind::kBackward, i);
    Round round;
    if (ahead + i < all) round.push_back(action(ActionKind::kForward, ahead + i));
    if (!interleaves(spec) && !round.empty()) rounds.push_back(std::exchange(round, {}));
    round.push_back(backward);
    rounds.push_back(std::move(round));
    // The weight backward of micro-batch i runs after the input backward of micro-batch i + stage. So a later stage has
    // more weight backwards left after its last input backward, to fill the time until earlier stages end.
    if (split && i >= stage) rounds.push_back({action(ActionKind::kBackwardWeight, i - stage)});
  }
  for (int64_t i = std::max<int64_t>(0, all - stage); split && i < all; ++i) {
    rounds.push_back({action(ActionKind::kBackwardWeight, i)});
  }
  return rounds;
}

void check(const ScheduleSpec& spec) {
  if (spec.stages < 1 || spec.micro_batches < 1 || spec.virtual_stages < 1) {
    throw input_error("pipeline",
                      "expected mesh.pipeline, micro-batches per step and mesh.virtual_stages of at least 1, got ",
                      spec.stages, ", ", spec.micro_batches, " and ", spec.virtual_stages, "; set each to 1 or more");
  }
  const bool any = spec.kind == PipelineSchedule::kInterleaved || spec.kind == PipelineSchedule::kForwardOnly;
  if (!any && spec.virtual_stages != 1) {
    throw input_error("pipeline", "expected mesh.virtual_stages = 1 with mesh.schedule = \"", name_of(spec.kind),
                      "\", got ", spec.virtual_stages,
                      "; set mesh.virtual_stages = 1 or mesh.schedule = \"interleaved\"");
  }
}

std::string describe(const Message& message) {
  return str_cat(message.payload == Payload::kActivation ? "activation" : "gradient", " of micro-batch ",
                 message.micro_batch);
}

}  // namespace

std::string describe(const Action& action) {
  const auto compute = [&](std::string_view what) {
    return str_cat(what, " of micro-batch ", action.micro_batch, " on chunk ", action.chunk);
  };
  switch (action.kind) {
    case ActionKind::kForward: return compute("forward");
    case ActionKind::kBackward: return compute("backward");
    case ActionKind::kBackwardInput: return compute("input backward");
    case ActionKind::kBackwardWeight: return compute("weight backward");
    case ActionKind::kTransfer: break;
  }
  std::string text;
  if (action.send) {
    text = str_cat("send ", describe(*action.send), " from chunk ", action.send->chunk, " to stage ", action.peer);
  }
  if (action.send && action.receive) text += " and ";
  if (action.receive) {
    text += str_cat("receive ", describe(*action.receive), " for chunk ", action.receive->chunk, " from stage ",
                    action.peer);
  }
  return text.empty() ? "empty transfer" : text;
}

namespace {

std::vector<std::vector<Round>> all_rounds(const ScheduleSpec& spec) {
  check(spec);
  std::vector<std::vector<Round>> rounds;
  for (int64_t stage = 0; stage < spec.stages; ++stage) rounds.push_back(compute_rounds(spec, stage));
  return rounds;
}

}  // namespace

std::vector<ActionList> make_schedules(const ScheduleSpec& spec) { return add_transfers(spec, all_rounds(spec)); }

ActionList make_schedule(const ScheduleSpec& spec, int64_t stage) {
  ASHLAR_CHECK(stage >= 0 && stage < spec.stages, "stage ", stage, " is not below the number of stages ", spec.stages);
  return add_transfers_of(spec, all_rounds(spec), stage);
}

const ActionList& StageSchedules::of(const ScheduleSpec& spec) {
  for (const auto& [made, list] : lists_)
    if (made == spec) return list;
  return lists_.emplace_back(spec, make_schedule(spec, stage_)).second;
}

}  // namespace ashlar::pipeline
