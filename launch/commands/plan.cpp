#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_format.h"
#include "core/base/table.h"
#include "launch/commands/arguments.h"
#include "launch/commands/planned_config.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/plan/report.h"
#include "launch/training/engine_options.h"
#include "launch/training/layout.h"
#include "launch/training/memory.h"

namespace ashlar::launch {

const char* const kPlanHelp =
    R"(ashlar plan CONFIG|RUN_DIR [section.key=value ...] [-np N] [--device NAME] [--price P] [--meshes]
            [--sweep section.key=A,B ...] [--json]

Answers before a launch: does it fit, how long does it take, which mesh. Nothing is allocated and no GPU is needed.

The memory is what the trainer's own code allocates in a dry run on the rank that needs most, part by part, against
what one rank may use. When it does not fit, the cheapest change that makes it fit is printed. The time of a step, its
parts, bytes and flops come from the rates of the device.

  -np N          ranks of the run (default: those of the mesh of CONFIG)
  --device NAME  a device of configs/devices, e.g. h100-sxm, or the path of a device file. Without it: this machine, as
                 `ashlar bench device` measured it; before that, only memory is planned
  --price P      the price of one device for an hour; prints what the run costs
  --meshes       every way to divide the ranks, the best first, and why each of the others is not better
  --sweep K=A,B  a row for each value of a key; repeatable: a row for each combination
  --json         one object, or an array with --meshes and --sweep; launch/plan/README.md lists the fields
)";

namespace {

using plan::Choice;
using plan::Planned;

struct PlanArguments {
  std::string path;
  std::vector<std::string> overrides;
  int64_t ranks = 0;  // 0: of the mesh
  std::optional<std::string> device;
  double price = 0;
  bool meshes = false, json = false;
  std::vector<std::string> sweeps;
};

PlanArguments parse_plan(Words words) {
  Arguments arguments("plan", words);
  PlanArguments a;  // assigned one by one, since g++ 12 destroys members twice when an initializer list throws
  a.ranks = arguments.integer("-np", 0, 1, 1 << 20);
  a.device = arguments.option("--device");
  a.price = arguments.number("--price", 0, 0, 1e6);
  a.meshes = arguments.flag("--meshes");
  a.json = arguments.flag("--json");
  while (const auto sweep = arguments.option("--sweep")) a.sweeps.push_back(*sweep);
  if (a.meshes && !a.sweeps.empty())
    throw input_error("plan", "--meshes and --sweep are both given: expected one of them; run ashlar plan twice");
  std::vector<std::string> files = arguments.positionals();
  a.overrides = take_overrides(files);
  arguments.expect(files, 1, "one configuration file or run directory",
                   "; usage: ashlar plan CONFIG [section.key=value ...]");
  a.path = files[0];
  return a;
}

/// All combinations of the values of several sweeps.
std::vector<std::vector<std::string>> combinations(const std::vector<std::string>& sweeps) {
  std::vector<std::vector<std::string>> all = {{}};
  for (const std::string& sweep : sweeps) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& before : all) {
      for (const std::string& value : alternatives_of("plan", "--sweep", sweep)) {
        longer.push_back(before);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += str_cat(text.empty() ? "" : " ", word);
  return text;
}

/// The cells of a plan in a table: memory, time, tokens per second, bubble.
std::vector<std::string> cells(const Planned& p, const plan::Target& target) {
  std::vector<std::string> row = {training::human_bytes(p.memory.bytes), fits(p, target) ? "fits" : "does not fit"};
  if (!p.time) return row;
  row.push_back(plan::duration_text(p.time->seconds));
  row.push_back(absl::StrFormat("%.0f tok/s", p.time->tokens_per_second()));
  row.push_back(absl::StrFormat("%.1f%% of peak", 100 * p.time->share_of_peak()));
  row.push_back(absl::StrFormat("%.1f%% bubble", 100 * p.time->bubble));
  return row;
}

void print(std::ostream& out, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) out << line << "\n";
}

/// What the modes of the command share.
struct Plans {
  const PlanArguments& args;
  const plan::Target& target;
  const plan::PlanChoice& plan;
  int64_t ranks;
  std::ostream& out;
};

void print_one(const Plans& p) {
  const Planned planned = p.plan({{}, p.ranks});
  std::optional<plan::Advice> advice;
  if (!fits(planned, p.target)) advice = plan::cheapest_change(planned, p.target, p.plan);
  if (p.args.json) {
    nlohmann::ordered_json json = to_json(planned, p.target, p.args.price);
    if (advice) {
      json["change"] = to_json(advice->planned, p.target, p.args.price);
      json["change"]["overrides"] = advice->choice.overrides;
    }
    p.out << json.dump(2) << "\n";
    return;
  }
  print(p.out, report(planned, p.target, p.args.price));
  if (fits(planned, p.target)) return;
  if (!advice) {
    p.out
        << "no change that plan knows makes it fit: use a smaller model or train.sequence_length, or larger devices\n";
    return;
  }
  const std::string ranks = advice->choice.ranks == p.ranks ? "" : str_cat("-np ", advice->choice.ranks, " ");
  p.out << "the cheapest change that fits: " << ranks << joined(advice->choice.overrides) << " ("
        << joined(cells(advice->planned, p.target)) << ")\n";
}

void print_meshes(const Plans& p) {
  const Planned given = p.plan({{}, p.ranks});
  const std::vector<plan::MeshChoice> meshes = plan::ranked_meshes(given, p.target, p.plan);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> impossible;
  for (const plan::MeshChoice& mesh : meshes) {
    const std::string overrides = joined(mesh.choice.overrides);
    if (!mesh.planned) {
      impossible.push_back(str_cat("not possible: ", overrides, ": ", mesh.problem));
      json.push_back({{"overrides", mesh.choice.overrides}, {"problem", mesh.problem}});
      continue;
    }
    const std::string reason =
        rows.empty() ? "best" : plan::reason_against(*mesh.planned, *meshes[0].planned, p.target);
    json.push_back(to_json(*mesh.planned, p.target, p.args.price));
    json.back()["overrides"] = mesh.choice.overrides;
    json.back()["reason"] = reason;
    std::vector<std::string> row = {str_cat(training::mesh_text(training::shape_of(mesh.planned->run.mesh)),
                                            ", micro-batches of ", mesh.planned->run.train.micro_batch)};
    for (std::string& cell : cells(*mesh.planned, p.target)) row.push_back(std::move(cell));
    row.push_back(reason);
    rows.push_back(std::move(row));
  }
  if (p.args.json) {
    p.out << json.dump(2) << "\n";
    return;
  }
  print(p.out, aligned_lines(rows));
  print(p.out, impossible);
}

void print_sweep(const Plans& p) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<std::string>& overrides : combinations(p.args.sweeps)) {
    const Planned planned = p.plan({overrides, p.ranks});
    json.push_back(to_json(planned, p.target, p.args.price));
    json.back()["overrides"] = overrides;
    rows.push_back({joined(overrides)});
    for (std::string& cell : cells(planned, p.target)) rows.back().push_back(std::move(cell));
  }
  if (p.args.json) {
    p.out << json.dump(2) << "\n";
  } else {
    print(p.out, aligned_lines(rows));
  }
}

}  // namespace

int run_plan_command(Words words, Session& session) {
  const int64_t program_bytes = training::resident_bytes();
  const PlanArguments args = parse_plan(words);
  const PlannedConfig config(args.path, args.overrides, session.log);
  const int64_t ranks = args.ranks > 0 ? args.ranks : config.ranks_of_mesh();
  const plan::Target target = plan::find_target(args.device, ranks);
  const plan::PlanChoice plan_choice = [&](const Choice& choice) {
    const config::RunConfig run = config.resolved(choice);
    return plan::plan_of({.run = run,
                          .device = target.kind,
                          .data_bytes = PlannedConfig::data_bytes(run),
                          .program_bytes = program_bytes},
                         target);
  };
  const Plans plans{.args = args, .target = target, .plan = plan_choice, .ranks = ranks, .out = session.out};
  if (args.meshes) {
    print_meshes(plans);
  } else if (!args.sweeps.empty()) {
    print_sweep(plans);
  } else {
    print_one(plans);
  }
  return 0;
}

}  // namespace ashlar::launch
