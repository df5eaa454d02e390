#include "launch/commands/subcommands.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timed_steps.h"
#include "launch/commands/timing.h"
#include "launch/training/engine_options.h"
#include "launch/training/layout.h"
#include "launch/training/memory.h"
#include "launch/training/run_identity.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

/// A configuration to measure. `name` is its override from --compare, e.g. "block.topology=parallel", or empty.
struct Variant {
  std::string name;
  config::RunConfig config;
};

struct StepArguments {
  int64_t steps = 5, warmup = 2;
  bool json = false;
  std::vector<Variant> variants;
};

StepArguments parse_step(std::span<const std::string> words, Session& session) {
  Arguments arguments("bench step", words);
  StepArguments a{.steps = arguments.integer("--steps", 5, 1, 100000),
                  .warmup = arguments.integer("--warmup", 2, 0, 100000),
                  .json = arguments.flag("--json")};
  const std::string compare = arguments.option("--compare").value_or("");
  std::vector<std::string> files = arguments.positionals();
  const std::vector<std::string> overrides = take_overrides(files);
  arguments.expect(files, 1, "one configuration file", "; usage: ashlar bench step CONFIG [section.key=value ...]");
  const std::vector<std::string> alternatives =
      compare.empty() ? std::vector<std::string>{""} : alternatives_of("bench step", "--compare", compare);
  for (const std::string& alternative : alternatives) {
    std::vector<std::string> all = overrides;
    if (!alternative.empty()) all.push_back(alternative);
    a.variants.push_back({alternative, config_of_steps("bench step", files[0], all, session)});
  }
  return a;
}

TimedSteps::Traffic total(const TimedSteps::Result& r) {
  TimedSteps::Traffic sum;
  for (const auto& [name, traffic] : r.traffic) {
    sum.operations += traffic.operations;
    sum.bytes += traffic.bytes;
  }
  return sum;
}

nlohmann::ordered_json step_json(const Variant& variant, const std::string& device, const TimedSteps::Result& r) {
  nlohmann::ordered_json row;
  if (!variant.name.empty()) row["variant"] = variant.name;
  row["step_ms"] = r.step_ms;
  row["step_ms_min"] = r.step_ms_min;
  row["step_ms_max"] = r.step_ms_max;
  row["forward_backward_ms"] = r.forward_backward_ms;
  row["tokens_per_sec"] = r.tokens_per_sec;
  row["peak_gflops"] = r.peak_flops / 1e9;
  row["share_of_peak"] = r.share;
  row["share_of_peak_causal"] = r.share_causal;
  row["threads"] = variant.config.run.threads;
  row["device"] = device;
  row["dtype"] = name_of(variant.config.run.dtype);
  row["peak_memory_bytes"] = training::peak_resident_bytes();
  row["allocator_calls"] = r.allocator_calls;
  row["gemms"] = r.gemms;
  for (const auto& [name, traffic] : r.traffic)
    row["traffic"][name] = {{"operations", traffic.operations}, {"bytes", traffic.bytes}};
  return row;
}

void print_one(std::ostream& out, TimedSteps& bench, const TimedSteps::Result& r, int64_t steps) {
  const config::RunConfig& c = bench.config();
  out << bench.device() << "\n";
  out << absl::StrFormat(
      "%d sequences of %d tokens in %d micro-batches, %s, %s, %d threads a rank, median of %d steps\n",
      bench.global_batch(), c.train.sequence_length, bench.num_micro_batches(), std::string(name_of(c.run.dtype)),
      training::mesh_text(training::shape_of(c.mesh)), c.run.threads, steps);
  out << absl::StrFormat("%.0f tok/s\n", r.tokens_per_sec);
  out << absl::StrFormat("step %.1f ms (%.1f to %.1f): forward and backward %.1f, clipping and optimizer %.1f\n",
                         r.step_ms, r.step_ms_min, r.step_ms_max, r.forward_backward_ms,
                         r.step_ms - r.forward_backward_ms);
  out << absl::StrFormat(
      "share of peak %.1f%% (6N + attention in full), %.1f%% (attention causal); peak %.0f GFLOP/s of %s measured in "
      "this run\n",
      100 * r.share, 100 * r.share_causal, r.peak_flops / 1e9, std::string(name_of(c.run.dtype)));
  out << absl::StrFormat("memory %s, %d system allocations during the timed steps\n",
                         training::human_bytes(training::peak_resident_bytes()), r.allocator_calls);
  if (c.mesh.pipeline * c.mesh.data * c.mesh.tensor == 1) return;
  out << absl::StrFormat("rank 0, per step: %d matrix products", r.gemms);
  for (const auto& [name, traffic] : r.traffic)
    out << absl::StrFormat("; %s %d operations, %s", name, traffic.operations, training::human_bytes(traffic.bytes));
  out << "\n";
}

/// Returns the quartiles of the ratios of a variant's step times to the step times of the first variant. Each ratio
/// compares two steps of the same round, so disturbances of the machine that last longer than a round cancel.
std::array<double, 3> ratios(const TimedSteps& first, const TimedSteps& variant) {
  std::vector<double> all;
  for (size_t s = 0; s < first.step_ms().size(); ++s) all.push_back(variant.step_ms()[s] / first.step_ms()[s]);
  return {quantile(all, 0.25), quantile(all, 0.5), quantile(all, 0.75)};
}

void print_comparison(std::ostream& out, const StepArguments& a, std::span<const std::unique_ptr<TimedSteps>> benches,
                      std::span<const TimedSteps::Result> results) {
  out << absl::StrFormat("%-32s %10s %22s %12s %10s %12s %12s\n", "", "step ms", "ratio", "tok/s", "products",
                         "operations", "bytes");
  for (size_t i = 0; i < results.size(); ++i) {
    const TimedSteps::Result& r = results[i];
    const TimedSteps::Traffic traffic = total(r);
    const std::array<double, 3> q = ratios(*benches[0], *benches[i]);
    out << absl::StrFormat("%-32s %10.1f %22s %12.0f %10d %12d %12s\n", a.variants[i].name, r.step_ms,
                           absl::StrFormat("%.3f (%.3f to %.3f)", q[1], q[0], q[2]), r.tokens_per_sec, r.gemms,
                           traffic.operations, training::human_bytes(traffic.bytes));
  }
  out << absl::StrFormat(
      "medians of %d alternating steps, ratios of consecutive steps with quartiles; products, operations and bytes "
      "are of rank 0, per step\n",
      a.steps);
}

}  // namespace

int run_bench_step(Words words, Session& session) {
  std::ostream& out = session.out;
  comm::Bootstrap& bootstrap = session.bootstrap;
  StepArguments arguments;
  comm::try_on_all_ranks(bootstrap.control(), [&] { arguments = parse_step(words, session); });
  std::vector<std::unique_ptr<TimedSteps>> benches;
  for (const Variant& variant : arguments.variants)
    benches.push_back(std::make_unique<TimedSteps>(variant.config, bootstrap));
  // Each round runs one step of every variant, in the reverse order of the previous round, so that all variants see the
  // same state of the machine.
  for (int64_t s = 0; s < arguments.warmup + arguments.steps; ++s) {
    for (const auto& bench : benches) bench->step(s >= arguments.warmup);
    std::ranges::reverse(benches);
  }
  if ((arguments.warmup + arguments.steps) % 2 == 1) std::ranges::reverse(benches);

  std::vector<TimedSteps::Result> results;
  for (const auto& bench : benches) results.push_back(bench->result());
  if (arguments.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      rows.push_back(step_json(arguments.variants[i], benches[i]->device(), results[i]));
      if (i > 0) rows.back()["ratio"] = ratios(*benches[0], *benches[i])[1];
    }
    out << (rows.size() == 1 ? rows[0] : rows).dump() << "\n";
  } else if (results.size() == 1) {
    print_one(out, *benches[0], results[0], arguments.steps);
  } else {
    print_comparison(out, arguments, benches, results);
  }
  return 0;
}

}  // namespace ashlar::launch
