#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/plan/planner.h"
#include "launch/plan/step_time.h"
#include "launch/runs/run_folder.h"
#include "launch/trace/chrome_trace.h"
#include "launch/trace/step_summary.h"
#include "launch/trace/summary_report.h"
#include "launch/trace/trace_file.h"
#include "launch/training/engine_options.h"
#include "launch/training/step_batches.h"

namespace ashlar::launch {

const char* const kTraceHelp =
    "ashlar trace RUN [--step N] [-o FILE] [--json]\n"
    "\n"
    "Writes a step that `train` has traced (log.trace_steps=[10,20], log.trace_every=1000) as a Chrome trace over all\n"
    "ranks (default: trace-N.json), which https://ui.perfetto.dev and chrome://tracing open, and prints the bubble of\n"
    "the pipeline beside the planned one, the share of communication that is hidden, and the slowest rank. Without\n"
    "--step: lists the traced steps and takes the last. --json prints the summary as JSON (launch/trace/README.md).\n";

namespace {

constexpr size_t kMostListed = 20;

std::string steps_text(const std::vector<int64_t>& steps) {
  if (steps.size() <= kMostListed) return comma_list(steps);
  return str_cat(comma_list(std::vector(steps.begin(), steps.begin() + kMostListed - 1)), ", ..., ", steps.back());
}

int64_t chosen_step(const std::string& path, const std::vector<int64_t>& steps, std::optional<int64_t> step) {
  constexpr const char* kRemedy = "train with log.trace_steps=[10,20] or log.trace_every=1000, for steps still to come";
  if (steps.empty())
    throw input_error("trace", printable(path), ": expected a run with traced steps, got none; ", kRemedy);
  if (!step) return steps.back();
  if (std::ranges::find(steps, *step) == steps.end())
    throw input_error("trace", printable(path), ": expected a traced step (", steps_text(steps), "), got --step ",
                      *step, "; choose one of these, or ", kRemedy);
  return *step;
}

/// The bubble that `plan` predicts for a run, if this machine was measured and the configuration is that of the trace.
std::optional<double> predicted_bubble(const runs::RunFolder& run, const trace::StepTrace& step) {
  if (!run.config || !(training::shape_of(run.config->mesh) == step.mesh)) return std::nullopt;
  const config::RunConfig& c = *run.config;
  const bool same = c.mesh.schedule == step.schedule.kind && c.mesh.virtual_stages == step.schedule.virtual_stages &&
                    training::num_micro_batches(c) == step.schedule.micro_batches;
  if (!same) return std::nullopt;
  const plan::Target target = plan::target_of_run(c, step.mesh.ranks());
  if (!target.device) return std::nullopt;
  try {
    return plan::step_time(c, *target.device).bubble;
  } catch (const Error&) {  // the device has no link between machines
    return std::nullopt;
  }
}

}  // namespace

int run_trace_command(Words words, Session& session) {
  Arguments arguments("trace", words);
  const int64_t asked = arguments.integer("--step", 0, 1, 1'000'000'000'000);
  const std::optional<std::string> file = arguments.option("-o");
  const bool json = arguments.flag("--json");
  const std::vector<std::string> paths = arguments.positionals();
  arguments.expect(paths, 1, "one run directory", "; usage: ashlar trace RUN [--step N]");
  const runs::RunFolder run = runs::read_run(paths[0]);
  const std::vector<int64_t> steps = trace::traced_steps(run.path);
  const int64_t number = chosen_step(paths[0], steps, asked > 0 ? std::optional(asked) : std::nullopt);
  const trace::StepTrace step = trace::read_step_trace(trace::file_of(run.path, number));
  const trace::StepSummary summary = trace::summary_of(step);
  const std::optional<double> predicted = predicted_bubble(run, step);

  const std::string out = file.value_or(str_cat("trace-", number, ".json"));
  io::write_file_atomically(out, trace::chrome_trace(step, run.name));
  if (json) {
    nlohmann::ordered_json j = {{"run", run.path.string()}, {"traced_steps", steps}, {"file", out}};
    j.update(trace::summary_json(step, summary, predicted));
    session.out << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (asked == 0) session.out << "traced steps: " << steps_text(steps) << "\n";
  for (const std::string& line : trace::summary_lines(step, summary, predicted)) session.out << line << "\n";
  session.out << "wrote " << printable(out) << "; open it in https://ui.perfetto.dev or chrome://tracing\n";
  return 0;
}

}  // namespace ashlar::launch
