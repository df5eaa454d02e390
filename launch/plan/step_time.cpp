#include "launch/plan/step_time.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "launch/plan/communication.h"
#include "launch/plan/rank_work.h"
#include "launch/training/layout.h"
#include "parallel/model/flops.h"
#include "parallel/pipeline/simulate.h"

namespace ashlar::plan {

namespace {

/// What a stage does for a micro-batch.
enum class Part : uint8_t { kProducts, kAttention, kRows, kHead, kLaunches, kGradients, kTensor, kExpert };
constexpr auto names_of(Part) {
  return enum_names<Part>("products", "attention", "norms, activations and other kernels", "head and loss",
                          "gaps between kernels", "weight gradients added up", "tensor communication",
                          "expert communication");
}
constexpr size_t kParts = std::size(names_of(Part{}));
/// Launches of a layer, forward and backward, which tests/evidence counts; and of embedding and head.
constexpr double kLaunchesDense = 32, kLaunchesExperts = 56, kLaunchesEnd = 10;
constexpr int64_t kSimulatedRuns = 1 << 15;  // actions of a simulated schedule; longer schedules are extrapolated

struct Cost {
  double seconds = 0, hidden = 0, flops = 0, bytes = 0;
  Cost& operator+=(const Cost& other) {
    seconds += other.seconds;
    hidden += other.hidden;
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

struct Costs {
  std::array<Cost, kParts> parts;
  Cost& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
  Costs& operator+=(const Costs& other) {
    for (size_t i = 0; i < kParts; ++i) parts[i] += other.parts[i];
    return *this;
  }
  double seconds() const {
    return std::accumulate(parts.begin(), parts.end(), 0.0, [](double sum, const Cost& c) { return sum + c.seconds; });
  }
};

/// A micro-batch on a chunk of the model: forward, gradients of inputs, gradients of weights; and what the chunk holds.
struct Chunk {
  Costs forward, input, weight;
  double parameters = 0, expert_parameters = 0;
};

/// The rates of a rank: those of the device, by the number of threads, and of the system.
class Model {
 public:
  Model(const config::RunConfig& run, const Device& device, const System& system)
      : run_(run),
        device_(device),
        system_(system),
        collectives_(device, system.inter_bandwidth),
        cuda_(device.kind == DeviceKind::kCuda),
        slowdown_(system.kernels *
                  (cuda_ ? 1 : static_cast<double>(device.threads) / static_cast<double>(run.run.threads))),
        tokens_(static_cast<double>(run.train.micro_batch * run.train.sequence_length)),
        element_(static_cast<double>(size_of(run.run.dtype))) {}

  Chunk chunk(const model::StageRange& range) const {
    Chunk c;
    if (range.embedding) add_end(embedding_work(run_), Part::kRows, c);
    for (int64_t layer = range.first_layer; layer < range.last_layer; ++layer) add_layer(layer_work(run_, layer), c);
    if (range.head) add_end(head_work(run_), Part::kHead, c);
    // A GPU adds each weight's gradient to the main gradient in fp32. The rates of a measured CPU include this.
    if (cuda_) c.weight[Part::kGradients] += bytes(8 * (c.parameters + c.expert_parameters));
    return c;
  }

  double send_seconds() const {
    const auto shared = run_.mesh.sequence_parallel ? static_cast<double>(run_.mesh.tensor) : 1;
    return collectives_.send(row_bytes() / shared, run_.mesh.tensor * run_.mesh.data);
  }

  /// Reduce-scatter of the gradients in fp32, or all-gather of the weights, of the chunks that a rank holds.
  double exchange_seconds(const Chunk& held, double element) const {
    const MeshGroups groups = this->groups();
    return collectives_.reduce_scatter(element * held.parameters, groups.data) +
           (held.expert_parameters > 0
                ? collectives_.reduce_scatter(element * held.expert_parameters, groups.expert_replicas)
                : 0);
  }
  double update_seconds(const Chunk& held) const {
    const double own = (held.parameters + held.expert_parameters) / static_cast<double>(run_.mesh.data);
    const bool narrow = run_.optimizer.rule.state_dtype == optim::StateDType::kBFloat16;
    return slowdown_ * (narrow ? kNarrowUpdateBytes : kUpdateBytes) * own / device_.optimizer;
  }
  double element() const { return element_; }
  /// Share of a backward or forward that hides communication. The threads of a CPU communicate themselves.
  double hiding() const { return cuda_ ? system_.data_overlap : 0; }
  double peak_flops() const {
    const double threads = cuda_ ? 1 : static_cast<double>(run_.run.threads) / static_cast<double>(device_.threads);
    return threads * rates().peak;
  }

 private:
  struct MeshGroups {
    Group tensor, expert, data, expert_replicas;
  };
  MeshGroups groups() const {
    const auto& m = run_.mesh;
    return {.tensor = {m.tensor, 1},
            .expert = {m.expert, m.tensor},
            .data = {m.data, m.tensor},
            .expert_replicas = {m.data / m.expert, m.tensor * m.expert}};
  }
  const DtypeRates& rates() const { return device_.rates(run_.run.dtype); }
  double row_bytes() const { return tokens_ * static_cast<double>(run_.model.d_model) * element_; }

  Cost bytes(double n) const { return {.seconds = slowdown_ * n / rates().streaming, .bytes = n}; }
  Cost launches(double n) const { return {.seconds = slowdown_ * n * device_.launch_gap}; }
  Cost product(double flops, double terms) const {
    return {.seconds = slowdown_ * rates().seconds(flops, std::max(terms, 1.0)), .flops = flops};
  }

  void add_products(const std::vector<Product>& products, Part part, Chunk& c) const {
    for (const Product& p : products) {
      const double rows = tokens_ * p.rows, flops = 2 * rows * p.k * p.m;
      c.forward[part] += product(flops, p.k);
      c.input[part] += product(flops, p.m);
      c.weight[part] += product(flops, rows * p.rows_of_matrix);
    }
  }

  void add_end(const EndWork& work, Part part, Chunk& c) const {
    add_products(work.products, part, c);
    c.forward[part] += bytes(tokens_ * work.forward_bytes);
    c.input[part] += bytes(tokens_ * work.backward_bytes);
    c.forward[Part::kLaunches] += launches(kLaunchesEnd / 2);
    c.input[Part::kLaunches] += launches(kLaunchesEnd / 2);
    c.parameters += work.parameters;
    if (run_.mesh.tensor == 1) return;
    Costs& pass = part == Part::kHead ? c.input : c.forward;  // a sum of rows of the embedding, or of their gradients
    pass[Part::kTensor] += {.seconds = collectives_.all_reduce(row_bytes(), groups().tensor), .bytes = row_bytes()};
  }

  void add_layer(const LayerWork& work, Chunk& c) const {
    Chunk layer;
    add_products(work.products, Part::kProducts, layer);
    const AttentionRates attention =
        attention_rates(device_.attention(run_.run.dtype), work.head_dim, run_.train.sequence_length);
    const double flops = tokens_ * work.attention_flops;
    layer.forward[Part::kAttention] += {.seconds = slowdown_ * flops / attention.forward, .flops = flops};
    layer.input[Part::kAttention] += {.seconds = slowdown_ * 2.5 * flops / attention.backward, .flops = 2 * flops};
    layer.forward[Part::kRows] += bytes(tokens_ * work.forward_bytes);
    layer.input[Part::kRows] += bytes(tokens_ * work.backward_bytes);
    const double kernels = run_.model.moe.experts > 0 ? kLaunchesExperts : kLaunchesDense;
    layer.forward[Part::kLaunches] += launches(kernels / 3);
    layer.input[Part::kLaunches] += launches(kernels / 3);
    layer.weight[Part::kLaunches] += launches(kernels / 3);
    add_communication(work, layer);
    if (run_.train.recompute == Recompute::kBlock) {
      Costs again = layer.forward;
      for (Cost& cost : again.parts) cost.flops = 0;
      layer.input += again;
    }
    if (run_.train.recompute == Recompute::kSelective)
      layer.input[Part::kRows] += bytes(tokens_ * work.recomputed_bytes);
    c.forward += layer.forward;
    c.input += layer.input;
    c.weight += layer.weight;
    c.parameters += work.parameters;
    c.expert_parameters += work.expert_parameters;
  }

  void add_communication(const LayerWork& work, Chunk& layer) const {
    const MeshGroups groups = this->groups();
    if (work.tensor_exchanges > 0) {
      const double bytes = work.tensor_exchanges * row_bytes();
      const double seconds = work.tensor_exchanges * collectives_.all_reduce(row_bytes(), groups.tensor);
      // Products of weight gradients run beside the sums of input gradients.
      const double beside = cuda_ ? layer.weight[Part::kProducts].seconds : 0;
      const double products = layer.forward[Part::kProducts].seconds;
      const double forward = cuda_ ? std::min(system_.tensor_overlap * products, seconds) : 0;
      const double backward = std::min(beside, seconds);
      layer.forward[Part::kTensor] += {.seconds = seconds - forward, .hidden = forward, .bytes = bytes};
      layer.input[Part::kTensor] += {.seconds = seconds - backward, .hidden = backward, .bytes = bytes};
    }
    if (work.expert_rows > 0) {
      const double bytes = 2 * row_bytes() * work.expert_rows;  // to the experts and back
      const Cost both{.seconds = 2 * collectives_.all_to_all(bytes / 2, groups.expert), .bytes = bytes};
      layer.forward[Part::kExpert] += both;
      layer.input[Part::kExpert] += both;
    }
  }

  const config::RunConfig& run_;
  const Device& device_;
  const System& system_;
  const Collectives collectives_;
  const bool cuda_;
  const double slowdown_, tokens_, element_;
};

struct Pipelined {
  double seconds = 0, bubble = 0;
};

/// Time of the schedule. Once a pipeline is full, its time grows linearly with the number of micro-batches; so a long
/// schedule is extrapolated from two shorter ones.
Pipelined simulated(pipeline::ScheduleSpec spec, const pipeline::Costs& costs) {
  const int64_t all = spec.micro_batches;
  const auto run = [&](int64_t micro_batches) {
    spec.micro_batches = micro_batches;
    return pipeline::simulate(spec, pipeline::make_schedules(spec), costs);
  };
  const int64_t many =
      std::max<int64_t>(kSimulatedRuns / spec.chunks() / spec.stages, 2) * spec.stages + all % spec.stages;
  const pipeline::Simulation first = run(std::min(all, many));
  if (all <= many) return {first.time, first.bubble_fraction};
  const pipeline::Simulation second = run(many + spec.stages);
  const double slope = (second.time - first.time) / static_cast<double>(spec.stages);
  const double seconds = first.time + slope * static_cast<double>(all - many);
  const double busy = first.time * (1 - first.bubble_fraction) * static_cast<double>(all) / static_cast<double>(many);
  return {seconds, 1 - busy / seconds};
}

/// The chunks that the busiest stage holds, as one, and the stages' simulated time.
struct Stages {
  Chunk busiest;
  Pipelined pipelined;
  double last_backward = 0, first_forward = 0;  ///< of the busiest stage: one micro-batch on all its chunks
};

Stages stages_of(const config::RunConfig& run, const Model& model, const pipeline::ScheduleSpec& spec) {
  const pipeline::Partition partition = training::partition_of(
      run.model,
      {.sequence_length = run.train.sequence_length, .stages = spec.stages, .virtual_stages = spec.virtual_stages});
  std::vector<Chunk> by_stage(static_cast<size_t>(spec.stages));
  pipeline::Costs costs;
  for (int64_t i = 0; i < std::ssize(partition.chunks); ++i) {
    const Chunk chunk = model.chunk(partition.chunks[static_cast<size_t>(i)]);
    costs.forward.push_back(chunk.forward.seconds());
    costs.backward_input.push_back(chunk.input.seconds());
    costs.backward_weight.push_back(chunk.weight.seconds());
    Chunk& stage = by_stage[static_cast<size_t>(pipeline::stage_of(i, spec.stages))];
    stage.forward += chunk.forward;
    stage.input += chunk.input;
    stage.weight += chunk.weight;
    stage.parameters += chunk.parameters;
    stage.expert_parameters += chunk.expert_parameters;
  }
  if (spec.stages > 1) costs.latency = model.send_seconds();
  const auto busy = [](const Chunk& c) { return c.forward.seconds() + c.input.seconds() + c.weight.seconds(); };
  Stages stages{.busiest = *std::ranges::max_element(by_stage, {}, busy), .pipelined = simulated(spec, costs)};
  stages.first_forward = stages.busiest.forward.seconds();
  stages.last_backward = stages.busiest.input.seconds() + stages.busiest.weight.seconds();
  return stages;
}

void add_lines(const Stages& stages, double micro_batches, std::vector<TimeLine>& lines) {
  double busy = 0;
  Costs all = stages.busiest.forward;
  all += stages.busiest.input;
  all += stages.busiest.weight;
  for (size_t i = 0; i < kParts; ++i) {
    const Cost& c = all.parts[i];
    if (c.seconds <= 0 && c.hidden <= 0) continue;
    lines.push_back({.what = std::string(name_of(static_cast<Part>(i))),
                     .seconds = micro_batches * c.seconds,
                     .hidden = micro_batches * c.hidden,
                     .flops = micro_batches * c.flops,
                     .bytes = micro_batches * c.bytes});
    busy += micro_batches * c.seconds;
  }
  const double waiting = stages.pipelined.seconds - busy;
  if (waiting > 1e-12 * busy) lines.push_back({.what = "pipeline: waiting and transfers", .seconds = waiting});
}

/// Gradients are summed during the last backward, and weights gathered until the first forward of the next step.
void add_data_lines(const config::RunConfig& run, const Model& model, const Stages& stages,
                    std::vector<TimeLine>& lines) {
  const double parameters = stages.busiest.parameters + stages.busiest.expert_parameters;
  const auto add = [&](const char* what, double element, double beside) {
    const double seconds = model.exchange_seconds(stages.busiest, element);
    const double hidden = std::min(seconds, model.hiding() * beside);
    if (seconds > 0)
      lines.push_back(
          {.what = what, .seconds = seconds - hidden, .hidden = hidden, .flops = 0, .bytes = element * parameters});
  };
  const double gradient = static_cast<double>(size_of(accumulate_dtype(run.run.dtype)));
  add("data: sums of gradients", gradient, stages.last_backward);
  lines.push_back({.what = "optimizer", .seconds = model.update_seconds(stages.busiest)});
  add("data: updated weights", model.element(), stages.first_forward);
}

}  // namespace

StepTime step_time(const config::RunConfig& configured, const Device& device, const System& system) {
  config::RunConfig run = configured;
  run.train.micro_batch = std::max<int64_t>(run.train.micro_batch, 1);
  run.train.global_batch = std::max(run.train.global_batch, run.train.micro_batch * run.mesh.data);
  const Model model(run, device, system);
  StepTime step{.micro_batches = run.train.global_batch / (run.train.micro_batch * run.mesh.data)};
  const pipeline::ScheduleSpec spec{.kind = run.mesh.schedule,
                                    .stages = run.mesh.pipeline,
                                    .micro_batches = step.micro_batches,
                                    .virtual_stages = run.mesh.virtual_stages};
  const Stages stages = stages_of(run, model, spec);
  add_lines(stages, static_cast<double>(step.micro_batches), step.lines);
  add_data_lines(run, model, stages, step.lines);

  double exposed = 0, hidden = 0;
  for (const TimeLine& line : step.lines) {
    step.seconds += line.seconds;
    hidden += line.hidden;
    if (line.what.find("communication") != std::string::npos || line.what.starts_with("data:")) exposed += line.seconds;
  }
  step.low = (step.seconds - exposed) * (1 - system.spread);
  step.high = (step.seconds + hidden) * (1 + system.spread);
  step.bubble = stages.pipelined.bubble;
  step.tokens = static_cast<double>(run.train.global_batch * run.train.sequence_length);
  step.model_flops = step.tokens * model::flops_per_token(run.model, run.train.sequence_length).total_causal();
  const int64_t ranks = run.mesh.tensor * run.mesh.pipeline * run.mesh.data;
  step.peak_flops = model.peak_flops() * static_cast<double>(ranks);
  return step;
}

}  // namespace ashlar::plan
