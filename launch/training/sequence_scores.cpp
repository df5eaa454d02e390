#include "launch/training/sequence_scores.h"

#include <algorithm>
#include <numeric>

#include "launch/training/evaluation.h"
#include "parallel/comm/host.h"

namespace ashlar::training {

namespace {

std::span<const int32_t> input_of(const ScoreRequest& r) { return std::span(r.tokens).first(r.tokens.size() - 1); }

/// The targets of a micro-batch, and the request of each.
struct Targets {
  std::vector<int64_t> rows;
  std::vector<int32_t> ids;
  std::vector<size_t> requests;
};

/// Computes the scores of one rank's inputs round by round.
class Scoring {
 public:
  Scoring(Engine& engine, std::span<const ScoreRequest> requests, std::span<const ScoreInput> inputs)
      : engine_(engine), requests_(requests), inputs_(inputs), log_probs_(requests.size()), misses_(requests.size()) {}

  void run(const ScoreRound& round) {
    targets_.assign(static_cast<size_t>(round.slots), {});
    slots_.resize(std::max(slots_.size(), targets_.size()));
    std::vector<pipeline::MicroBatch> batches;
    for (int64_t s = 0; s < round.slots; ++s) {
      fill(round, s);
      slots_[s].upload(engine_.ctx(), batch_);
      batches.push_back(slots_[s].micro_batch());
    }
    engine_.score(batches, [&](const Ctx& ctx, const model::Stage& stage, int64_t slot, const Tensor& rows) {
      add(targets_[slot], stage.score(ctx, rows, targets_[slot].rows, targets_[slot].ids));
    });
  }

  /// (all ranks)
  std::vector<SequenceScore> all() {
    comm::sum_all(engine_.mesh().control(), log_probs_);
    comm::sum_all(engine_.mesh().control(), misses_);
    std::vector<SequenceScore> scores;
    for (size_t i = 0; i < requests_.size(); ++i)
      scores.push_back({.log_prob = log_probs_[i], .greedy = misses_[i] == 0});
    return scores;
  }

 private:
  void fill(const ScoreRound& round, int64_t slot) {
    const mesh::Mesh& mesh = engine_.mesh();
    data::resize_batch(batch_, round.rows, round.length, {});
    batch_.order.clear();  // for gradients only
    std::ranges::fill(batch_.ids, 0);
    std::ranges::fill(batch_.targets, data::kIgnoreIndex);
    for (int64_t b = 0; b < round.rows; ++b) {
      const auto row = batch_.positions.begin() + b * round.length;
      std::iota(row, row + round.length, 0);
      const int64_t i = round.first + (slot * mesh.size(kSampleAxes) + mesh.index(kSampleAxes)) * round.rows + b;
      if (i < std::ssize(inputs_)) put(inputs_[i], b * round.length, targets_[slot]);
    }
  }

  void put(const ScoreInput& input, int64_t first_row, Targets& targets) {
    std::ranges::copy(input_of(requests_[input.requests.front()]), batch_.ids.begin() + first_row);
    for (const size_t r : input.requests) {
      const ScoreRequest& request = requests_[r];
      for (int64_t t = input.length - request.scored; t < input.length; ++t) {
        targets.rows.push_back(first_row + t);
        targets.ids.push_back(request.tokens[t + 1]);
        targets.requests.push_back(r);
      }
    }
  }

  void add(const Targets& targets, std::span<const model::TargetScore> scores) {
    if (engine_.mesh().at()[Axis::kTensor] != 0) return;  // tensor ranks have the same scores
    for (size_t i = 0; i < scores.size(); ++i) {
      log_probs_[targets.requests[i]] += scores[i].log_prob;
      misses_[targets.requests[i]] += scores[i].greedy ? 0 : 1;
    }
  }

  Engine& engine_;
  std::span<const ScoreRequest> requests_;
  std::span<const ScoreInput> inputs_;
  std::vector<double> log_probs_, misses_;
  data::Batch batch_;
  std::vector<DeviceBatch> slots_;
  std::vector<Targets> targets_;
};

}  // namespace

std::vector<ScoreInput> score_inputs(std::span<const ScoreRequest> requests) {
  std::vector<size_t> order;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ScoreRequest& r = requests[i];
    ASHLAR_CHECK(r.scored >= 0 && r.scored < std::ssize(r.tokens), r.scored, " of ", r.tokens.size(), " tokens");
    if (r.scored > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto x = input_of(requests[a]), y = input_of(requests[b]);
    return x.size() != y.size() ? x.size() > y.size() : std::ranges::lexicographical_compare(x, y);
  });
  std::vector<ScoreInput> inputs;
  for (const size_t r : order) {
    const auto input = input_of(requests[r]);
    if (inputs.empty() || !std::ranges::equal(input, input_of(requests[inputs.back().requests.front()])))
      inputs.push_back({.length = std::ssize(input), .requests = {}});
    inputs.back().requests.push_back(r);
  }
  return inputs;
}

std::vector<ScoreRound> plan_rounds(std::span<const ScoreInput> inputs, const ScoreLimits& limits) {
  constexpr int64_t kLengthMultiple = 16;  // few shapes, and rows that suit the kernels
  const auto up = [](int64_t n, int64_t d) { return (n + d - 1) / d; };
  std::vector<ScoreRound> rounds;
  for (int64_t first = 0, n = std::ssize(inputs); first < n;) {
    ScoreRound round{.first = first};
    round.length = std::min(up(inputs[first].length, kLengthMultiple) * kLengthMultiple, limits.longest);
    const int64_t most = std::clamp<int64_t>(limits.tokens / round.length, 1, limits.rows);
    // The last round has as few and as equally filled micro-batches as possible.
    round.slots = std::min(limits.slots, up(n - first, most * limits.replicas));
    round.rows = std::min(most, up(n - first, round.slots * limits.replicas));
    const int64_t unit = limits.rows_multiple / std::gcd(limits.rows_multiple, round.length);
    round.rows = up(round.rows, unit) * unit;
    rounds.push_back(round);
    first += round.slots * round.rows * limits.replicas;
  }
  return rounds;
}

std::optional<std::vector<SequenceScore>> score_sequences(Engine& engine, std::span<const ScoreRequest> requests,
                                                          ScoreLimits limits,
                                                          const std::function<int64_t(int64_t done)>& stop) {
  mesh::Mesh& mesh = engine.mesh();
  limits.replicas = mesh.size(kSampleAxes);
  limits.slots = batches_per_round(mesh);
  limits.rows_multiple = mesh.size(Axis::kTensor);
  const std::vector<ScoreInput> inputs = score_inputs(requests);
  Scoring scoring(engine, requests, inputs);
  for (const ScoreRound& round : plan_rounds(inputs, limits)) {
    if (comm::max_of(mesh.control(), stop(round.first)) != 0) return std::nullopt;
    scoring.run(round);
  }
  return scoring.all();
}

}  // namespace ashlar::training
