#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/memory_plan.h"
#include "launch/plan/step_time.h"

namespace ashlar::plan {

/// What is planned on. Without `device` only the memory of this machine's CPU is planned.
struct Target {
  std::optional<Device> device;
  std::string no_device;  ///< why there is no device, for the report
  DeviceKind kind = DeviceKind::kCpu;
  int64_t capacity = 0;      ///< bytes that one rank may use; 0: unknown
  std::string name() const;  ///< "h100-sxm", or "this machine's CPU"
};

/// Returns the target of `--device NAME`, or without a name the device that was measured on this machine, else the
/// memory that `ranks` ranks find on it. Input error for an unknown name.
Target find_target(const std::optional<std::string>& name, int64_t ranks);
/// Returns the target of a run that starts: the measured device if it is of run.device's kind.
Target target_of_run(const config::RunConfig& run, int64_t ranks_here);

std::string duration_text(double seconds);  ///< "12.3 ms", "4.5 s", "3.2 hours", "12 days"

struct Planned {
  config::RunConfig run;
  MemoryPlan memory;
  std::optional<StepTime> time;  ///< absent without a device
  std::string no_time;           ///< why `time` is absent, or empty
  int64_t ranks() const { return run.mesh.tensor * run.mesh.pipeline * run.mesh.data; }
};

/// Plans a resolved configuration.
Planned plan_of(const MemoryPlanArgs& args, const Target& target);
bool fits(const Planned& planned, const Target& target);

/// Overrides of a configuration ("train.micro_batch=2") and the number of ranks.
struct Choice {
  std::vector<std::string> overrides;
  int64_t ranks = 1;
};
/// Resolves and plans a choice; throws the ConfigError of an illegal one.
using PlanChoice = std::function<Planned(const Choice& choice)>;

struct Advice {
  Choice choice;
  Planned planned;
};
/// Returns the first change that makes `planned` fit, of changes ordered by what they cost the user: selective
/// recomputation, smaller micro-batches, recomputation of blocks, sequence parallelism, other divisions of the same
/// ranks, more ranks. Nothing if none of them is enough.
std::optional<Advice> cheapest_change(const Planned& planned, const Target& target, const PlanChoice& plan);

/// A division of the ranks. `problem` says why it is not legal, on one line; then `planned` is absent.
struct MeshChoice {
  Choice choice;
  std::optional<Planned> planned;
  std::string problem;
};
/// Plans every mesh of the ranks, with the largest micro-batch up to the configuration's that divides a replica's
/// batch. Legal meshes first: those that fit before those that do not, then by time, without times by memory.
std::vector<MeshChoice> ranked_meshes(const Planned& planned, const Target& target, const PlanChoice& plan);
/// Says on one line why `loser` is not better than `best`: its memory, or what of its step takes longer.
std::string reason_against(const Planned& loser, const Planned& best, const Target& target);

}  // namespace ashlar::plan
