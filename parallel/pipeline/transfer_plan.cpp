#include "parallel/pipeline/transfer_plan.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/base/error.h"

namespace ashlar::pipeline {
namespace {

/// A tensor, identified by the model chunk that produces it.
struct TensorId {
  Payload payload;
  int64_t micro_batch, maker;

  size_t index(const ScheduleSpec& spec) const {  // index among all tensors of a step
    const int64_t row = maker + (payload == Payload::kActivation ? 0 : spec.chunks());
    return static_cast<size_t>(row * spec.micro_batches + micro_batch);
  }
};

std::optional<TensorId> input_of(const ScheduleSpec& spec, int64_t stage, const Action& action) {
  const int64_t k = model_chunk(stage, action.chunk, spec.stages);
  switch (action.kind) {
    case ActionKind::kForward:
      if (k == 0) return std::nullopt;
      return TensorId{Payload::kActivation, action.micro_batch, k - 1};
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      if (k == spec.chunks() - 1) return std::nullopt;
      return TensorId{Payload::kGradient, action.micro_batch, k + 1};
    case ActionKind::kBackwardWeight:
    case ActionKind::kTransfer: break;
  }
  return std::nullopt;
}

std::optional<TensorId> output_of(const ScheduleSpec& spec, int64_t stage, const Action& action) {
  const int64_t k = model_chunk(stage, action.chunk, spec.stages);
  if (action.kind == ActionKind::kBackwardWeight || action.kind == ActionKind::kTransfer) return std::nullopt;
  const bool forward = action.kind == ActionKind::kForward;
  return TensorId{forward ? Payload::kActivation : Payload::kGradient, action.micro_batch, k};
}

/// Returns the tick at which each round begins, [stages][rounds].
std::vector<std::vector<int64_t>> start_ticks(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds) {
  constexpr int64_t kNotMade = -1;
  // Indexed by tensor: tick from which the tensor can be sent; kNotMade if its round has no tick yet.
  std::vector<int64_t> made(static_cast<size_t>(2 * spec.chunks() * spec.micro_batches), kNotMade);
  std::vector<std::vector<int64_t>> ticks(rounds.size());
  const auto advance = [&](int64_t stage) {
    std::vector<int64_t>& own = ticks[static_cast<size_t>(stage)];
    const std::vector<Round>& todo = rounds[static_cast<size_t>(stage)];
    if (own.size() == todo.size()) return false;
    const Round& round = todo[own.size()];
    int64_t start = own.empty() ? 0 : own.back() + 1;
    for (const Action& action : round) {
      const std::optional<TensorId> input = input_of(spec, stage, action);
      if (!input) continue;
      const int64_t tick = made[input->index(spec)];
      if (tick == kNotMade) return false;
      start = std::max(start, tick);
    }
    for (const Action& action : round) {
      if (const auto output = output_of(spec, stage, action)) made[output->index(spec)] = start + 1;
    }
    own.push_back(start);
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t stage = 0; stage < spec.stages; ++stage) {
      while (advance(stage)) moved = true;
    }
  }
  for (size_t stage = 0; stage < rounds.size(); ++stage) {
    ASHLAR_CHECK(ticks[stage].size() == rounds[stage].size(), "stage ", stage, " stops at round ", ticks[stage].size());
  }
  return ticks;
}

/// A transfer of one tensor from one stage to another.
struct Move {
  int64_t tick, turn, from, to;
  Message sent, received;

  /// Sort key that makes moves of the same tick and pair of stages adjacent.
  auto key() const {
    return std::tuple(tick, turn, std::min(from, to), std::max(from, to), sent.payload, sent.micro_batch, sent.chunk);
  }
  bool pairs_with(const Move& other) const {
    return tick == other.tick && std::minmax(from, to) == std::minmax(other.from, other.to);
  }
};

/// Order of the links (pairs of neighbouring stages) within one tick: first the links whose lower stage is even, then
/// the other links and the link between the last stage and the first. So transfers on links without a common stage run
/// at the same time, instead of one after another along the pipeline.
int64_t turn_of(int64_t from, int64_t to) {
  const auto [low, high] = std::minmax(from, to);
  return high - low > 1 ? 1 : low % 2;
}

/// Lists all moves, or, if `only` is given, the moves from and to stage `only`. Tensors pass only between neighbouring
/// stages, so all stages except `only` and its neighbours are skipped.
std::vector<Move> list_moves(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds,
                             const std::vector<std::vector<int64_t>>& ticks, std::optional<int64_t> only) {
  std::vector<Move> moves;
  for (int64_t stage = 0; stage < spec.stages; ++stage) {
    const int64_t ahead = only ? (*only - stage + spec.stages) % spec.stages : 0;
    if (std::min(ahead, spec.stages - ahead) > 1) continue;
    const auto s = static_cast<size_t>(stage);
    for (size_t i = 0; i < rounds[s].size(); ++i) {
      for (const Action& action : rounds[s][i]) {
        const std::optional<TensorId> input = input_of(spec, stage, action);
        if (!input) continue;
        const int64_t from = stage_of(input->maker, spec.stages);
        if (only && from != *only && stage != *only) continue;
        moves.push_back({.tick = ticks[s][i],
                         .turn = turn_of(from, stage),
                         .from = from,
                         .to = stage,
                         .sent = {input->payload, input->micro_batch, chunk_of(input->maker, spec.stages)},
                         .received = {input->payload, input->micro_batch, action.chunk}});
      }
    }
  }
  std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.key() < b.key(); });
  return moves;
}

std::vector<ActionList> action_lists(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds,
                                     std::optional<int64_t> only) {
  const std::vector<std::vector<int64_t>> ticks = start_ticks(spec, rounds);
  const std::vector<Move> moves = list_moves(spec, rounds, ticks, only);
  std::vector<ActionList> lists(rounds.size());
  std::vector<size_t> next(rounds.size(), 0);  // next round of each stage
  const auto run_rounds_before = [&](size_t stage, int64_t tick) {
    for (size_t& i = next[stage]; i < rounds[stage].size() && ticks[stage][i] < tick; ++i) {
      lists[stage].insert(lists[stage].end(), rounds[stage][i].begin(), rounds[stage][i].end());
    }
  };
  const auto exchange = [&](int64_t tick, int64_t stage, int64_t peer, const Move* out, const Move* in) {
    if (only && stage != *only) return;
    Action action{.kind = ActionKind::kTransfer, .peer = peer};
    if (out != nullptr) action.send = out->sent;
    if (in != nullptr) action.receive = in->received;
    run_rounds_before(static_cast<size_t>(stage), tick);
    lists[static_cast<size_t>(stage)].push_back(action);
  };
  for (size_t i = 0; i < moves.size();) {
    const Move& first = moves[i];
    std::vector<const Move*> there, back;
    for (; i < moves.size() && moves[i].pairs_with(first); ++i) {
      (moves[i].from == first.from ? there : back).push_back(&moves[i]);
    }
    for (size_t n = 0; n < std::max(there.size(), back.size()); ++n) {
      const Move* out = n < there.size() ? there[n] : nullptr;
      const Move* in = n < back.size() ? back[n] : nullptr;
      if (first.from == first.to) {
        exchange(first.tick, first.from, first.to, out, out);
      } else {
        exchange(first.tick, first.from, first.to, out, in);
        exchange(first.tick, first.to, first.from, in, out);
      }
    }
  }
  for (size_t stage = 0; stage < rounds.size(); ++stage) {
    if (only && static_cast<int64_t>(stage) != *only) continue;
    if (!rounds[stage].empty()) run_rounds_before(stage, ticks[stage].back() + 1);
  }
  return lists;
}

}  // namespace

std::vector<ActionList> add_transfers(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds) {
  return action_lists(spec, rounds, std::nullopt);
}

ActionList add_transfers_of(const ScheduleSpec& spec, const std::vector<std::vector<Round>>& rounds, int64_t stage) {
  return std::move(action_lists(spec, rounds, stage)[static_cast<size_t>(stage)]);
}

}  // namespace ashlar::pipeline
