#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace ashlar::pipeline {
namespace {

/// Progress of a micro-batch on a chunk.
struct Progress {
  bool has_activation = false, forward = false, sent_activation = false;
  bool has_gradient = false, sent_gradient = false;
};

struct Chunk {
  std::vector<Progress> micro_batches;
  int64_t inputs_done = 0;   // micro-batches [0, n) have run their input backward
  int64_t weights_done = 0;  // micro-batches [0, n) have run their weight backward
};

struct SimStage {
  const ActionList* list = nullptr;
  std::vector<Chunk> chunks;
  double clock = 0;
  int64_t live = 0, queued = 0;
  StageRun run;

  size_t at() const { return run.spans.size(); }  // index of the next action
  bool done() const { return at() == list->size(); }
  const Action& action() const { return (*list)[at()]; }
};

class Simulator {
 public:
  Simulator(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Costs& costs)
      : spec_(spec), costs_(costs) {
    ASHLAR_CHECK(static_cast<int64_t>(lists.size()) == spec.stages, "got ", lists.size(), " lists for ", spec.stages,
                 " stages");
    for (const auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
      ASHLAR_CHECK(static_cast<int64_t>(list->size()) == spec.chunks(), "got ", list->size(), " costs for ",
                   spec.chunks(), " chunks");
      for (const double cost : *list)
        ASHLAR_CHECK(std::isfinite(cost) && cost >= 0, "expected a finite cost of 0 or more, got ", cost);
    }
    ASHLAR_CHECK(std::isfinite(costs.latency) && costs.latency >= 0, "expected a finite latency of 0 or more, got ",
                 costs.latency);
    const Chunk fresh{.micro_batches = std::vector<Progress>(static_cast<size_t>(spec.micro_batches))};
    for (const ActionList& list : lists) {
      stages_.push_back({.list = &list, .chunks = {static_cast<size_t>(spec.virtual_stages), fresh}});
    }
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int64_t stage = 0; stage < spec_.stages; ++stage) {
        while (advance(stage)) moved = true;
      }
    }
    check_end();
    Simulation result;
    for (const SimStage& stage : stages_) result.time = std::max(result.time, stage.clock);
    double idle = 0;
    for (SimStage& stage : stages_) {
      stage.run.idle = result.time - stage.run.busy;
      idle += stage.run.idle;
      result.stages.push_back(std::move(stage.run));
    }
    if (result.time > 0) result.bubble_fraction = idle / (result.time * static_cast<double>(spec_.stages));
    return result;
  }

 private:
  SimStage& stage(int64_t index) { return stages_[static_cast<size_t>(index)]; }

  std::string where(int64_t index) {
    const SimStage& s = stage(index);
    if (s.done()) return str_cat("stage ", index, " is done");
    return str_cat("stage ", index, " at action ", s.at(), " (", describe(s.action()), ")");
  }

  /// Throws unless the condition for a stage's next action holds. The text is formatted only if the condition does not
  /// hold.
  template <typename... Parts>
  void require(bool condition, int64_t index, const Parts&... reason) {
    if (condition) return;
    throw Bug(str_cat("[pipeline] ", name_of(spec_.kind), " of ", spec_.stages, " stages, ", spec_.micro_batches,
                      " micro-batches, ", spec_.virtual_stages, " virtual stages: ", where(index), ": ", reason...));
  }

  /// Runs a stage's next action. Returns false if the stage is done or must wait.
  bool advance(int64_t index) {
    SimStage& s = stage(index);
    if (s.done()) return false;
    if (s.action().kind == ActionKind::kTransfer) return match(index);
    compute(index);
    return true;
  }

  Chunk& chunk_at(int64_t index, int64_t micro_batch, int64_t chunk) {
    require(chunk >= 0 && chunk < spec_.virtual_stages, index, "no such chunk");
    require(micro_batch >= 0 && micro_batch < spec_.micro_batches, index, "no such micro-batch");
    return stage(index).chunks[static_cast<size_t>(chunk)];
  }

  void compute(int64_t index) {
    SimStage& s = stage(index);
    const Action& action = s.action();
    Chunk& chunk = chunk_at(index, action.micro_batch, action.chunk);
    Progress& progress = chunk.micro_batches[static_cast<size_t>(action.micro_batch)];
    const int64_t m = action.micro_batch, k = model_chunk(index, action.chunk, spec_.stages);
    double cost = 0;
    const bool trains = spec_.kind != PipelineSchedule::kForwardOnly;
    if (action.kind == ActionKind::kForward) {
      require(!progress.forward, index, "it has already run");
      require(k == 0 || progress.has_activation, index, "its input has not arrived");
      progress.forward = true;
      s.live += trains;
      cost += costs_.forward[static_cast<size_t>(k)];
    }
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
      require(trains, index, "there is no backward in forward_only");
      require(progress.forward, index, "its forward has not run");
      require(k == spec_.chunks() - 1 || progress.has_gradient, index, "its gradient has not arrived");
      require(m == chunk.inputs_done, index, "expected micro-batch ", chunk.inputs_done);
      ++chunk.inputs_done;
      --s.live;
      ++s.queued;
      cost += costs_.backward_input[static_cast<size_t>(k)];
    }
    // Only an input backward defers weight work. A full backward must not count in the peak of `queued`.
    if (action.kind == ActionKind::kBackwardInput) note_peaks(s);
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
      require(m == chunk.weights_done, index, "expected the weights of micro-batch ", chunk.weights_done);
      require(m < chunk.inputs_done, index, "its input backward has not run");
      ++chunk.weights_done;
      --s.queued;
      cost += costs_.backward_weight[static_cast<size_t>(k)];
    }
    note_peaks(s);
    s.run.busy += cost;
    s.run.spans.push_back({s.clock, s.clock + cost});
    s.clock += cost;
  }

  static void note_peaks(SimStage& s) {
    s.run.live = std::max(s.run.live, s.live);
    s.run.queued = std::max(s.run.queued, s.queued);
    s.run.held = std::max(s.run.held, s.live + s.queued);
  }

  /// Runs a transfer if the peer has reached it as well.
  bool match(int64_t index) {
    SimStage& s = stage(index);
    const Action& action = s.action();
    require(action.send || action.receive, index, "it transfers nothing");
    require(action.peer >= 0 && action.peer < spec_.stages, index, "no such stage");
    SimStage& peer = stage(action.peer);
    if (peer.done()) return false;
    const Action& other = peer.action();
    if (other.kind != ActionKind::kTransfer || other.peer != index) return false;
    check_pair(index, action.send, action.peer, other.receive);
    if (action.peer != index) check_pair(action.peer, other.send, index, action.receive);
    const double start = std::max(s.clock, peer.clock);
    const Span span{start, start + (action.peer == index ? 0 : costs_.latency)};
    s.clock = peer.clock = span.end;
    s.run.spans.push_back(span);
    if (action.peer != index) peer.run.spans.push_back(span);
    return true;
  }

  void check_pair(int64_t from, const std::optional<Message>& sent, int64_t to,
                  const std::optional<Message>& received) {
    const auto require_both = [&](bool condition, std::string_view reason) {
      if (!condition) require(false, from, reason, " at ", where(to));
    };
    require_both(sent.has_value() == received.has_value(), sent ? "nothing receives it" : "nothing is sent");
    if (!sent) return;
    const bool activation = sent->payload == Payload::kActivation;
    const auto m = static_cast<size_t>(sent->micro_batch);
    Chunk& maker = chunk_at(from, sent->micro_batch, sent->chunk);
    Chunk& user = chunk_at(to, received->micro_batch, received->chunk);
    const int64_t made_by = model_chunk(from, sent->chunk, spec_.stages);
    require_both(sent->payload == received->payload && sent->micro_batch == received->micro_batch &&
                     made_by + (activation ? 1 : -1) == model_chunk(to, received->chunk, spec_.stages),
                 "the peer expects another tensor");
    Progress& source = maker.micro_batches[m];
    require(activation ? source.forward : sent->micro_batch < maker.inputs_done, from, "it has not been computed");
    bool& gone = activation ? source.sent_activation : source.sent_gradient;
    require(!gone, from, "it was already sent");
    gone = true;
    Progress& target = user.micro_batches[m];
    (activation ? target.has_activation : target.has_gradient) = true;
  }

  void check_end() {
    std::string waiting;
    for (int64_t index = 0; index < spec_.stages; ++index) {
      if (!stage(index).done()) waiting = "no stage can continue";
    }
    for (int64_t index = 0; index < spec_.stages && !waiting.empty(); ++index) {
      waiting += str_cat("; ", where(index));
    }
    if (!waiting.empty()) throw Bug(str_cat("[pipeline] ", name_of(spec_.kind), " schedule: ", waiting));
    const int64_t backwards = spec_.kind == PipelineSchedule::kForwardOnly ? 0 : spec_.micro_batches;
    for (int64_t index = 0; index < spec_.stages; ++index) {
      for (int64_t c = 0; c < spec_.virtual_stages; ++c) {
        const Chunk& chunk = stage(index).chunks[static_cast<size_t>(c)];
        const auto require_all = [&](int64_t done, int64_t wanted, std::string_view what) {
          require(done == wanted, index, what, " of micro-batch ", done, " on chunk ", c, " is missing");
        };
        const auto first_left = std::find_if(chunk.micro_batches.begin(), chunk.micro_batches.end(),
                                             [](const Progress& progress) { return !progress.forward; });
        require_all(first_left - chunk.micro_batches.begin(), spec_.micro_batches, "forward");
        require_all(chunk.inputs_done, backwards, "backward");
        require_all(chunk.weights_done, backwards, "weight backward");
      }
    }
  }

  const ScheduleSpec& spec_;
  const Costs& costs_;
  std::vector<SimStage> stages_;
};

}  // namespace

Costs Costs::uniform(const ScheduleSpec& spec, double forward, double backward_input, double backward_weight) {
  const auto all = [&](double cost) { return std::vector<double>(static_cast<size_t>(spec.chunks()), cost); };
  return {.forward = all(forward), .backward_input = all(backward_input), .backward_weight = all(backward_weight)};
}

Simulation simulate(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Costs& costs) {
  return Simulator(spec, lists, costs).run();
}

}  // namespace ashlar::pipeline
