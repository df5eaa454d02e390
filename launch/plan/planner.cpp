#include "launch/plan/planner.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "absl/strings/str_format.h"
#include "core/base/error_text.h"
#include "core/base/strings.h"
#include "core/device/host_limits.h"
#include "launch/training/memory.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::plan {

std::string Target::name() const {
  return device ? device->name : kind == DeviceKind::kCpu ? "this machine's CPU" : "this machine's GPU";
}

Target find_target(const std::optional<std::string>& name, int64_t ranks) {
  std::error_code none;
  Target target;
  if (!name && !std::filesystem::exists(measured_device_path(), none)) {
    target.no_device = "this machine is not measured; run ashlar bench device once, or give --device NAME";
    target.capacity = memory_left_bytes() / ranks;
    return target;
  }
  target.device = device_or_measured(name);
  target.kind = target.device->kind;
  target.capacity = target.device->capacity;
  return target;
}

Target target_of_run(const config::RunConfig& run, int64_t ranks_here) {
  Target target = find_target(std::nullopt, ranks_here);
  const DeviceKind kind = run.run.device == config::Device::kCuda ? DeviceKind::kCuda : DeviceKind::kCpu;
  if (target.device && target.kind != kind) target = {};
  if (!target.device) target.no_device = "this device is not measured; run ashlar bench device once";
  target.kind = kind;
  if (kind == DeviceKind::kCpu) target.capacity = memory_left_bytes() / ranks_here;
  if (kind == DeviceKind::kCuda && !target.device) target.capacity = 0;
  return target;
}

std::string duration_text(double seconds) {
  if (seconds < 1) return absl::StrFormat("%.3g ms", 1e3 * seconds);
  if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
  if (seconds < 2 * 3600) return absl::StrFormat("%.3g minutes", seconds / 60);
  if (seconds < 48 * 3600) return absl::StrFormat("%.3g hours", seconds / 3600);
  if (seconds < 730 * 86400.0) return absl::StrFormat("%.3g days", seconds / 86400);
  return absl::StrFormat("%.3g years", seconds / (365.25 * 86400));
}

Planned plan_of(const MemoryPlanArgs& args, const Target& target) {
  Planned planned;
  planned.run = args.run;
  planned.memory = memory_plan(args);
  planned.no_time = target.no_device;
  if (!target.device) return planned;
  try {
    planned.time = step_time(args.run, *target.device);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    planned.no_time = error.what();
  }
  return planned;
}

bool fits(const Planned& planned, const Target& target) {
  return target.capacity == 0 || planned.memory.bytes <= target.capacity;
}

namespace {

std::string set(std::string_view key, int64_t value) { return str_cat(key, "=", value); }

/// Changes that need no other ranks, from the cheapest.
std::vector<std::vector<std::string>> changes_of_step(const config::RunConfig& c) {
  std::vector<std::vector<std::string>> changes;
  const std::string selective = "train.recompute=selective", block = "train.recompute=block";
  const bool none = c.train.recompute == Recompute::kNone, blocks = c.train.recompute == Recompute::kBlock;
  if (none) changes.push_back({selective});
  std::vector<std::string> batches;
  for (int64_t b = c.train.micro_batch / 2; b >= 1; b /= 2) batches.push_back(set("train.micro_batch", b));
  for (const std::string& batch : batches) changes.push_back({batch});
  if (none && !batches.empty()) changes.push_back({selective, batches.back()});
  if (!blocks) changes.push_back({block});
  if (!blocks)
    for (const std::string& batch : batches) changes.push_back({block, batch});
  if (c.mesh.tensor > 1 && !c.mesh.sequence_parallel) {
    const size_t before = changes.size();
    changes.push_back({"mesh.sequence_parallel=true"});
    for (size_t i = 0; i < before; ++i) {
      changes.push_back(changes[i]);
      changes.back().push_back("mesh.sequence_parallel=true");
    }
  }
  if (c.mesh.schedule == pipeline::PipelineSchedule::kGpipe) changes.push_back({"mesh.schedule=1f1b"});
  return changes;
}

/// The largest micro-batch that divides a replica's sequences of a step, up to the configuration's.
int64_t micro_batch_for(const config::RunConfig& c, int64_t data) {
  const int64_t each = std::max<int64_t>(c.train.global_batch / data, 1);
  int64_t size = std::min(c.train.micro_batch, each);
  while (each % size != 0) --size;
  return size;
}

/// A lower bound of the bytes of the rank that needs most: the mean over all ranks of weights, gradients, master
/// weights and one moment. So meshes that are far from fitting need no dry run.
int64_t least_bytes(const config::RunConfig& c, int64_t parts, int64_t ranks) {
  const int64_t n = model::count_parameters(c.model).total();
  const int64_t accumulate = size_of(accumulate_dtype(c.run.dtype));
  return n / parts * (size_of(c.run.dtype) + accumulate) + n / ranks * 2 * accumulate;
}

/// All meshes of the ranks: those with few tensor ranks, which cost most communication, come first. Leaves out meshes
/// whose least_bytes exceed `capacity` (0: no limit).
std::vector<Choice> meshes_of(const config::RunConfig& c, int64_t ranks, int64_t capacity) {
  const bool experts = c.model.moe.experts > 0;
  std::vector<Choice> choices;
  for (const mesh::MeshShape& shape : mesh::shapes_of(ranks, experts)) {
    const int64_t tensor = shape[Axis::kTensor], pipeline = shape[Axis::kPipeline], expert = shape[Axis::kExpert];
    const int64_t data = shape.size(kSampleAxes);
    if (capacity > 0 && least_bytes(c, tensor * pipeline * expert, ranks) > capacity) continue;
    Choice choice{.overrides = {set("mesh.pipeline", pipeline), set("mesh.data", data), set("mesh.tensor", tensor)},
                  .ranks = ranks};
    if (experts) choice.overrides.push_back(set("mesh.expert", expert));
    const int64_t micro_batch = micro_batch_for(c, data);
    if (micro_batch != c.train.micro_batch) choice.overrides.push_back(set("train.micro_batch", micro_batch));
    choices.push_back(std::move(choice));
  }
  return choices;
}

std::optional<Planned> planned_if_legal(const Choice& choice, const PlanChoice& plan, std::string* problem = nullptr) {
  try {
    return plan(choice);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    if (problem != nullptr) *problem = first_line_of(text_of(error));
    return std::nullopt;
  }
}

}  // namespace

std::optional<Advice> cheapest_change(const Planned& planned, const Target& target, const PlanChoice& plan) {
  const config::RunConfig& c = planned.run;
  std::vector<Choice> choices;
  if (least_bytes(c, c.mesh.tensor * c.mesh.pipeline * c.mesh.expert, planned.ranks()) <= target.capacity)
    for (const std::vector<std::string>& change : changes_of_step(c)) choices.push_back({change, planned.ranks()});
  constexpr int64_t kMostGrowth = 256;
  const auto first_that_fits = [&]() -> std::optional<Advice> {
    for (const Choice& choice : choices) {
      std::optional<Planned> changed = planned_if_legal(choice, plan);
      if (changed && fits(*changed, target)) return Advice{.choice = choice, .planned = std::move(*changed)};
    }
    return std::nullopt;
  };
  for (int64_t growth = 1; growth <= kMostGrowth; growth *= 2) {
    if (std::optional<Advice> advice = first_that_fits()) return advice;
    choices.clear();
    for (const Choice& mesh : meshes_of(c, planned.ranks() * growth, target.capacity)) {
      for (const std::vector<std::string>& more :
           std::vector<std::vector<std::string>>{{},
                                                 {"train.recompute=selective"},
                                                 {"train.recompute=block"},
                                                 {"train.micro_batch=1", "train.recompute=block"}}) {
        choices.push_back(mesh);
        choices.back().overrides.insert(choices.back().overrides.end(), more.begin(), more.end());
      }
    }
  }
  return first_that_fits();
}

std::vector<MeshChoice> ranked_meshes(const Planned& planned, const Target& target, const PlanChoice& plan) {
  std::vector<MeshChoice> meshes;
  for (Choice& choice : meshes_of(planned.run, planned.ranks(), 0)) {
    MeshChoice mesh{.choice = std::move(choice), .planned = {}, .problem = ""};
    mesh.planned = planned_if_legal(mesh.choice, plan, &mesh.problem);
    meshes.push_back(std::move(mesh));
  }
  const auto key = [&](const MeshChoice& mesh) {
    if (!mesh.planned) return std::tuple(2, 0.0, int64_t{0});
    const Planned& p = *mesh.planned;
    return std::tuple(fits(p, target) ? 0 : 1, p.time ? p.time->seconds : 0.0, p.memory.bytes);
  };
  std::ranges::stable_sort(meshes, {}, key);
  return meshes;
}

std::string reason_against(const Planned& loser, const Planned& best, const Target& target) {
  const std::string needs = training::human_bytes(loser.memory.bytes);
  if (!fits(loser, target))
    return str_cat("does not fit: needs ", needs, " of ", training::human_bytes(target.capacity));
  if (!loser.time || !best.time)
    return str_cat("needs ", needs, ", more than ", training::human_bytes(best.memory.bytes));
  std::map<std::string, double> seconds;
  for (const TimeLine& line : loser.time->lines) seconds[line.what] += line.seconds;
  for (const TimeLine& line : best.time->lines) seconds[line.what] -= line.seconds;
  const auto worst = std::ranges::max_element(seconds, {}, [](const auto& line) { return line.second; });
  const double slower = loser.time->seconds / best.time->seconds - 1;
  if (worst == seconds.end() || slower <= 0) return "as fast, with more memory";
  return absl::StrFormat("%.1f%% slower: %s takes %s more", 100 * slower, worst->first, duration_text(worst->second));
}

}  // namespace ashlar::plan
