#include "launch/commands/bench_step.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "absl/strings/str_format.h"
#include "core/base/philox.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/config/run_config.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/training/memory.h"
#include "launch/training/peak.h"
#include "parallel/comm/together.h"

namespace ashlar::launch {

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

data::Batch random_batch(int64_t B, int64_t T, int64_t vocab, uint64_t index) {
  data::Batch batch;
  data::resize_batch(batch, B, T, {});
  std::vector<int32_t> row(T + 1);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t <= T; ++t) row[t] = static_cast<int32_t>(Philox::block(1, index, b * (T + 1) + t)[0] % vocab);
    data::fill_row(batch, b, row, -1, {});
  }
  batch.first_sample = static_cast<int64_t>(index) * B;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

struct StepArguments {
  int64_t steps = 5, warmup = 2;
  bool json = false;
  config::RunConfig config;
};

StepArguments parse(std::span<const std::string> words, comm::Bootstrap& bootstrap) {
  Arguments arguments("bench step", words);
  StepArguments a{.steps = arguments.integer("--steps", 5, 1, 100000),
                  .warmup = arguments.integer("--warmup", 2, 0, 100000),
                  .json = arguments.flag("--json")};
  std::vector<std::string> files = arguments.positionals();
  std::vector<std::string> overrides = take_overrides(files);
  if (files.size() != 1)
    throw input_error("bench step", "expected one configuration file, got ", files.size(),
                      "; usage: ashlar bench step CONFIG [section.key=value ...]");
  const config::RawConfig raw = config::read_config(files[0], overrides);
  config::Facts facts{.ranks = bootstrap.world().size(),
                      .local_ranks = bootstrap.local_size(),
                      .hardware_threads = cpu::detect_cpu().cores,
                      .purpose = config::Purpose::kStep};
  if (!raw.given("vocab.size")) facts.dataset_vocab_size = 257;  // bytes: no dataset is opened here
  a.config = config::resolve(raw, facts).config;
  if (a.config.train.sequence_length <= 0 || a.config.train.micro_batch + a.config.train.global_batch <= 0)
    throw input_error("bench step", "train.sequence_length and train.micro_batch are needed; give them in ", files[0],
                      " or as overrides");
  return a;
}

}  // namespace

int run_bench_step(std::span<const std::string> words, comm::Bootstrap& bootstrap, std::ostream& out) {
  comm::Communicator& ranks = bootstrap.world();
  StepArguments arguments;
  comm::together(ranks, [&] { arguments = parse(words, bootstrap); });
  const auto& [steps, warmup, json, c] = arguments;
  const int64_t T = c.train.sequence_length, B = std::max<int64_t>(c.train.micro_batch, 1);
  const int64_t global = std::max(c.train.global_batch, B * c.mesh.data);

  const int threads = static_cast<int>(c.run.threads);
  const auto backend = kernels::make_cpu_backend({.threads = threads});
  const auto stream = backend->make_stream();
  mesh::Mesh mesh(ranks, training::shape_of(c.mesh), c.model.n_kv_heads);
  training::Engine engine(*backend, *stream, mesh, training::engine_options(c));
  engine.initialize();
  std::vector<training::DeviceBatch> slots(global / (B * c.mesh.data));
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i].upload(engine.ctx(), random_batch(B, T, c.model.vocab_size, i * c.mesh.data + mesh.at().data));
  const std::vector<pipeline::MicroBatch> batches = training::micro_batches(slots);

  std::vector<double> total_ms, model_ms, peaks;
  int64_t system_calls = 0;
  const auto calls = [&] {
    int64_t n = 0;
    for (int i = 0; i < kNumMemoryKinds; ++i) n += backend->allocator(static_cast<MemoryKind>(i)).num_system_calls();
    return n;
  };
  for (int64_t s = 0; s < warmup + steps; ++s) {
    if (s == warmup) system_calls = calls();
    const double begin = now_ms();
    training::StepResult result = engine.forward_backward(batches, s);
    const double middle = now_ms();
    engine.check_finite(result, s);
    engine.update(result, s, 1e-4);
    if (s < warmup) continue;
    model_ms.push_back(middle - begin);
    total_ms.push_back(now_ms() - begin);
    // Between the steps, at the clock that they leave behind: cores that rested reach a peak that no step can hold.
    const double seconds = std::clamp(1e-4 * total_ms.back(), 0.005, 0.05);
    peaks.push_back(training::peak_flops(bootstrap, c.run.dtype, threads, seconds));
  }
  system_calls = calls() - system_calls;
  const auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.size() % 2 == 1 ? v[v.size() / 2] : 0.5 * (v[v.size() / 2 - 1] + v[v.size() / 2]);
  };
  const double ms = median(total_ms), forward_backward_ms = median(model_ms), peak = median(peaks);
  const double tokens_per_sec = static_cast<double>(global * T) / ms * 1e3;
  const model::FlopsPerToken flops = model::flops_per_token(c.model, T);
  const double share = tokens_per_sec * flops.total_full() / peak,
               share_causal = tokens_per_sec * flops.total_causal() / peak;
  if (json) {
    out << absl::StrFormat(
        "{\"step_ms\": %.4f, \"step_ms_min\": %.4f, \"step_ms_max\": %.4f, \"forward_backward_ms\": %.4f, "
        "\"tokens_per_sec\": %.2f, \"peak_gflops\": %.2f, "
        "\"share_of_peak\": %.4f, \"share_of_peak_causal\": %.4f, \"threads\": %d, \"isa\": \"%s\", \"dtype\": \"%s\", "
        "\"peak_memory_bytes\": %d, "
        "\"allocator_calls\": %d}\n",
        ms, *std::min_element(total_ms.begin(), total_ms.end()), *std::max_element(total_ms.begin(), total_ms.end()),
        forward_backward_ms, tokens_per_sec, peak / 1e9, share, share_causal, threads,
        std::string(cpu::name_of(cpu::detect_cpu().isa)), std::string(name_of(c.run.dtype)),
        training::peak_resident_bytes(), system_calls);
    return 0;
  }
  out << backend->description() << "\n";
  out << absl::StrFormat(
      "%d sequences of %d tokens in %d micro-batches, %s, pipeline %d x data %d x tensor %d, %d threads a rank, median "
      "of %d steps\n",
      global, T, batches.size(), std::string(name_of(c.run.dtype)), c.mesh.pipeline, c.mesh.data, c.mesh.tensor,
      threads, steps);
  out << absl::StrFormat("%.0f tok/s\n", tokens_per_sec);
  out << absl::StrFormat("step %.1f ms (%.1f to %.1f): forward and backward %.1f, norm, clip and AdamW %.1f\n", ms,
                         *std::min_element(total_ms.begin(), total_ms.end()),
                         *std::max_element(total_ms.begin(), total_ms.end()), forward_backward_ms,
                         ms - forward_backward_ms);
  out << absl::StrFormat(
      "share of peak %.1f%% (6N + attention in full), %.1f%% (attention causal); peak %.0f GFLOP/s of %s measured in "
      "this run\n",
      100 * share, 100 * share_causal, peak / 1e9, std::string(name_of(c.run.dtype)));
  out << absl::StrFormat("memory %s, allocator asked the system %d times during the timed steps\n",
                         training::human_bytes(training::peak_resident_bytes()), system_calls);
  return 0;
}

}  // namespace ashlar::launch
