// Every way to break one action of a schedule, held against an independent judge: a little executor that runs the
// lists on numbers. The simulator must refuse a mutant exactly when the judge's gradients differ from those of the
// plain loop over micro-batches, or when it gets stuck.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"

namespace ashlar::pipeline {
namespace {

using enum PipelineSchedule;

/// A number that depends on all its parts and on their order; it stands for a tensor.
uint64_t mix(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint64_t part : parts) hash = (hash ^ part) * 0xff51afd7ed558ccdu ^ (hash >> 29);
  return hash;
}

enum Tag : uint64_t { kEmbed, kOutput, kLoss, kInputGrad, kWeightGrad };

uint64_t output_of(uint64_t k, uint64_t x) { return mix({kOutput, k, x}); }
uint64_t input_grad_of(uint64_t k, uint64_t x, uint64_t dy) { return mix({kInputGrad, k, x, dy}); }
uint64_t weight_grad_of(uint64_t sum, uint64_t k, uint64_t x, uint64_t dy) { return mix({kWeightGrad, sum, k, x, dy}); }

/// What a step leaves behind: the weight gradient of every chunk, summed in order, and the loss of every micro-batch.
struct Result {
  std::vector<uint64_t> grads, losses;
  bool operator==(const Result&) const = default;
};

Result plain_loop(const ScheduleSpec& spec) {
  const auto chunks = static_cast<uint64_t>(spec.chunks());
  Result result{.grads = std::vector<uint64_t>(chunks, 0)};
  for (uint64_t m = 0; m < static_cast<uint64_t>(spec.micro_batches); ++m) {
    std::vector<uint64_t> x{mix({kEmbed, m})};
    for (uint64_t k = 0; k < chunks; ++k) x.push_back(output_of(k, x.back()));
    result.losses.push_back(mix({kLoss, x.back()}));
    if (spec.kind == kForwardOnly) continue;
    uint64_t dy = result.losses.back();
    for (uint64_t k = chunks; k-- > 0;) {
      result.grads[k] = weight_grad_of(result.grads[k], k, x[k], dy);
      dy = input_grad_of(k, x[k], dy);
    }
  }
  return result;
}

/// Runs lists as an executor would. Each tensor is held by (payload, micro-batch, chunk) and leaves when it is used.
class Judge {
 public:
  Judge(const ScheduleSpec& spec, const std::vector<ActionList>& lists)
      : spec_(spec), lists_(lists), stages_(lists.size()) {
    result_.grads.assign(static_cast<size_t>(spec.chunks()), 0);
    result_.losses.assign(static_cast<size_t>(spec.micro_batches), 0);
  }

  /// Empty when a stage gets stuck, lacks a tensor, or is left with one.
  std::optional<Result> run() {
    for (bool moved = true; moved && good_;) {
      moved = false;
      for (size_t stage = 0; stage < stages_.size() && good_; ++stage) {
        while (good_ && step(stage)) moved = true;
      }
    }
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      const Stage& s = stages_[stage];
      good_ =
          good_ && s.next == lists_[stage].size() && s.in.empty() && s.out.empty() && s.tapes.empty() && s.work.empty();
    }
    return good_ ? std::optional(result_) : std::nullopt;
  }

 private:
  using Place = std::pair<int64_t, int64_t>;  // micro-batch, chunk
  using Key = std::tuple<Payload, int64_t, int64_t>;
  struct Stage {
    size_t next = 0;
    std::map<Key, uint64_t> in, out;
    std::map<Place, uint64_t> tapes;                      // input
    std::map<Place, std::pair<uint64_t, uint64_t>> work;  // input, output gradient
  };

  template <typename K, typename T>
  T take(std::map<K, T>& from, const K& key) {
    const auto node = from.extract(key);
    if (node.empty()) good_ = false;
    return node.empty() ? T{} : node.mapped();
  }
  template <typename K, typename T>
  void put(std::map<K, T>& to, const K& key, const T& value) {
    good_ = good_ && to.emplace(key, value).second;
  }

  bool step(size_t stage) {
    Stage& s = stages_[stage];
    if (s.next == lists_[stage].size()) return false;
    const Action& action = lists_[stage][s.next];
    if (action.kind == ActionKind::kTransfer) return transfer(stage, action);
    const int64_t m = action.micro_batch, c = action.chunk, k = c * spec_.stages + static_cast<int64_t>(stage);
    if (m < 0 || m >= spec_.micro_batches || c < 0 || c >= spec_.virtual_stages) return good_ = false;
    const bool first = k == 0, last = k == spec_.chunks() - 1;
    const auto id = static_cast<uint64_t>(k);
    if (action.kind == ActionKind::kForward) {
      const uint64_t x = first ? mix({kEmbed, static_cast<uint64_t>(m)}) : take(s.in, Key(Payload::kActivation, m, c));
      if (spec_.kind != kForwardOnly) put(s.tapes, Place(m, c), x);
      if (last) {
        result_.losses[static_cast<size_t>(m)] ^= mix({kLoss, output_of(id, x)});  // twice is as wrong as never
      } else {
        put(s.out, Key(Payload::kActivation, m, c), output_of(id, x));
      }
    } else if (action.kind == ActionKind::kBackwardWeight) {
      const auto [x, dy] = take(s.work, Place(m, c));
      add_grad(id, x, dy);
    } else {
      const uint64_t x = take(s.tapes, Place(m, c));
      const uint64_t dy = last ? mix({kLoss, output_of(id, x)}) : take(s.in, Key(Payload::kGradient, m, c));
      if (!first) put(s.out, Key(Payload::kGradient, m, c), input_grad_of(id, x, dy));
      if (action.kind == ActionKind::kBackward) {
        add_grad(id, x, dy);
      } else {
        put(s.work, Place(m, c), std::pair(x, dy));
      }
    }
    ++s.next;
    return true;
  }

  void add_grad(uint64_t k, uint64_t x, uint64_t dy) { result_.grads[k] = weight_grad_of(result_.grads[k], k, x, dy); }

  bool transfer(size_t stage, const Action& action) {
    if (action.peer < 0 || action.peer >= spec_.stages) return good_ = false;
    const auto peer = static_cast<size_t>(action.peer);
    if (stages_[peer].next == lists_[peer].size()) return false;
    const Action& other = lists_[peer][stages_[peer].next];
    if (other.kind != ActionKind::kTransfer || other.peer != static_cast<int64_t>(stage)) return false;
    if (!action.send && !action.receive) return good_ = false;  // not even a message of no bytes
    move(stage, action, peer, other);
    if (peer != stage) move(peer, other, stage, action);
    ++stages_[stage].next;
    if (peer != stage) ++stages_[peer].next;
    return true;
  }

  /// The numbers alone travel: the receiver files what comes under what it expects.
  void move(size_t from, const Action& sender, size_t to, const Action& receiver) {
    good_ = good_ && sender.send.has_value() == receiver.receive.has_value();
    if (!good_ || !sender.send) return;
    const auto key = [](const Message& message) { return Key(message.payload, message.micro_batch, message.chunk); };
    const uint64_t value = take(stages_[from].out, key(*sender.send));
    put(stages_[to].in, key(*receiver.receive), value);
  }

  const ScheduleSpec& spec_;
  const std::vector<ActionList>& lists_;
  std::vector<Stage> stages_;
  Result result_;
  bool good_ = true;
};

bool simulator_accepts(const ScheduleSpec& spec, const std::vector<ActionList>& lists) {
  try {
    simulate(spec, lists, Costs::uniform(spec, 1, 1, 1));
    return true;
  } catch (const Bug&) {
    return false;
  }
}

/// Calls visit(what, mutant) for every schedule that differs in one action of one stage, or in the order of two.
void for_mutants(const ScheduleSpec& spec,
                 const std::function<void(const std::string&, const std::vector<ActionList>&)>& visit) {
  std::vector<ActionList> lists = make_schedules(spec);
  for (int64_t stage = 0; stage < spec.stages; ++stage) {
    ActionList& list = lists[static_cast<size_t>(stage)];
    const ActionList good = list;
    const auto show = [&](const std::string& what) {
      if (list != good) visit(str_cat("stage ", stage, ": ", what), lists);
      list = good;
    };
    for (size_t i = 0; i < good.size(); ++i) {
      const std::string text = str_cat("action ", i, ", ", describe(good[i]));
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      show(str_cat(text, ", dropped"));
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), good[i]);
      show(str_cat(text, ", doubled"));
      for (size_t j = i + 1; j < good.size(); ++j) {
        std::swap(list[i], list[j]);
        show(str_cat(text, ", swapped with action ", j, ", ", describe(good[j])));
      }
      const auto edit = [&](const std::string& what, const std::function<void(Action&)>& change) {
        change(list[i]);
        show(str_cat(text, ", ", what));
      };
      if (good[i].kind != ActionKind::kTransfer) {
        for (int64_t m = -1; m <= spec.micro_batches; ++m) {
          edit(str_cat("as micro-batch ", m), [&](Action& a) { a.micro_batch = m; });
        }
        for (int64_t c = -1; c <= spec.virtual_stages; ++c) {
          edit(str_cat("as chunk ", c), [&](Action& a) { a.chunk = c; });
        }
        for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward, ActionKind::kBackwardInput,
                                      ActionKind::kBackwardWeight, ActionKind::kTransfer}) {
          edit(str_cat("as kind ", static_cast<int>(kind)), [&](Action& a) { a.kind = kind; });
        }
        continue;
      }
      for (int64_t peer = -1; peer <= spec.stages; ++peer) {
        edit(str_cat("with stage ", peer), [&](Action& a) { a.peer = peer; });
      }
      edit("sent and received swapped", [](Action& a) { std::swap(a.send, a.receive); });
      for (const auto half : {&Action::send, &Action::receive}) {
        const std::string side = half == &Action::send ? "send" : "receive";
        edit(str_cat(side, " left out"), [&](Action& a) { (a.*half).reset(); });
        if (!(good[i].*half)) {
          edit(str_cat(side, " made up"), [&](Action& a) { a.*half = a.send ? a.send : a.receive; });
          continue;
        }
        for (int64_t m = -1; m <= spec.micro_batches; ++m) {
          edit(str_cat(side, " of micro-batch ", m), [&](Action& a) { (a.*half)->micro_batch = m; });
        }
        for (int64_t c = -1; c <= spec.virtual_stages; ++c) {
          edit(str_cat(side, " of chunk ", c), [&](Action& a) { (a.*half)->chunk = c; });
        }
        edit(str_cat(side, " of the other payload"), [&](Action& a) {
          Payload& payload = (a.*half)->payload;
          payload = payload == Payload::kActivation ? Payload::kGradient : Payload::kActivation;
        });
      }
    }
  }
}

std::vector<ScheduleSpec> judged() {
  return {{.kind = kForwardOnly, .stages = 3, .micro_batches = 4},
          {.kind = kForwardOnly, .stages = 2, .micro_batches = 3, .virtual_stages = 2},
          {.kind = kGpipe, .stages = 3, .micro_batches = 4},
          {.kind = k1F1B, .stages = 1, .micro_batches = 4},
          {.kind = k1F1B, .stages = 2, .micro_batches = 4},
          {.kind = k1F1B, .stages = 4, .micro_batches = 6},
          {.kind = kInterleaved, .stages = 1, .micro_batches = 3, .virtual_stages = 2},
          {.kind = kInterleaved, .stages = 2, .micro_batches = 4, .virtual_stages = 2},
          {.kind = kInterleaved, .stages = 3, .micro_batches = 4, .virtual_stages = 2},
          {.kind = kInterleaved, .stages = 4, .micro_batches = 4, .virtual_stages = 3},
          {.kind = kZbH1, .stages = 2, .micro_batches = 3},
          {.kind = kZbH1, .stages = 4, .micro_batches = 6}};
}

TEST(PipelineMutants, SimulatorAndJudgeAgreeOnEveryOne) {
  int64_t mutants = 0, caught = 0, equivalent = 0;
  for (const ScheduleSpec& spec : judged()) {
    SCOPED_TRACE(
        str_cat(name_of(spec.kind), " P ", spec.stages, " M ", spec.micro_batches, " V ", spec.virtual_stages));
    const Result right = plain_loop(spec);
    for_mutants(spec, [&](const std::string& what, const std::vector<ActionList>& lists) {
      const std::optional<Result> got = Judge(spec, lists).run();
      const bool harmless = got.has_value() && *got == right;
      EXPECT_EQ(simulator_accepts(spec, lists), harmless) << what;
      ++mutants;
      ++(harmless ? equivalent : caught);
    });
  }
  RecordProperty("mutants", static_cast<int>(mutants));
  RecordProperty("equivalent", static_cast<int>(equivalent));
  EXPECT_GT(caught, 10000);
  EXPECT_GT(equivalent, 0);
  EXPECT_LT(equivalent, mutants / 50) << equivalent << " of " << mutants;
}

TEST(PipelineMutants, JudgeFindsEveryScheduleRight) {
  for (const ScheduleSpec& spec : judged()) {
    const std::vector<ActionList> lists = make_schedules(spec);
    const std::optional<Result> got = Judge(spec, lists).run();
    ASSERT_TRUE(got.has_value()) << name_of(spec.kind);
    EXPECT_EQ(*got, plain_loop(spec)) << name_of(spec.kind);
  }
}

}  // namespace
}  // namespace ashlar::pipeline
