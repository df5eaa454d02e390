#include "launch/plan/memory_plan.h"

#include <algorithm>

#include "core/base/strings.h"
#include "launch/training/engine_options.h"
#include "launch/training/step_batches.h"

namespace ashlar::plan {

namespace {

/// Memory of the host beside the tensors of the device.
std::vector<MemoryPart> host_parts(const RankMemory& rank, const MemoryPlanArgs& args) {
  return {{"copies for the device and reports", rank.of(MemoryKind::kPinned), ""},
          {"snapshot for checkpoints", rank.snapshot,
           rank.snapshot > 0 ? str_cat("every ", args.run.checkpoint.every, " steps") : ""},
          {"data", args.data_bytes, ""},
          {"program", args.program_bytes, ""}};
}

std::vector<MemoryPart> tensor_parts(const RankMemory& rank, const config::RunConfig& c) {
  const int64_t activations = rank.of(MemoryKind::kActivations);
  const int64_t kept = std::min(rank.kept, activations - rank.batches);
  const int64_t micro_batches = training::num_micro_batches(c);
  return {{"weights", rank.of(MemoryKind::kParameters), std::string(name_of(c.run.dtype))},
          {"main gradients", rank.of(MemoryKind::kGradients), ""},
          {"master and moments", rank.of(MemoryKind::kOptimizer),
           c.mesh.data > 1 ? str_cat("divided over ", c.mesh.data, " replicas") : ""},
          {"activations kept", kept,
           str_cat(rank.in_flight, c.mesh.virtual_stages > 1 ? " chunks of micro-batches" : " of ",
                   c.mesh.virtual_stages > 1 ? std::string() : str_cat(micro_batches, " micro-batches"),
                   " in flight, recompute ", name_of(c.train.recompute))},
          {"activations in use", activations - rank.batches - kept,
           c.mesh.expert > 1 && c.mesh.expert_reserve > 1 ? str_cat("of the layer or the loss that runs; experts with ",
                                                                    c.mesh.expert_reserve, " times their share")
                                                          : std::string("of the layer or the loss that runs")},
          {"batches", rank.batches, str_cat("of two steps of ", micro_batches, " micro-batches")},
          {"scratch and tables", rank.of(MemoryKind::kWorkspace), ""}};
}

/// What a process takes of a GPU beside its tensors: the driver's context, NCCL's buffers, code of the libraries. Only
/// that GPU knows the true number; 1 to 2 GB are usual.
constexpr int64_t kGpuLibraries = 1'500'000'000;

int64_t total_of(const RankMemory& rank, const MemoryPlanArgs& args) {
  int64_t bytes = rank.device_bytes();
  if (args.device == DeviceKind::kCuda) bytes += kGpuLibraries;
  if (args.device == DeviceKind::kCpu)
    for (const MemoryPart& part : host_parts(rank, args)) bytes += part.bytes;
  return bytes;
}

}  // namespace

MemoryPlan memory_plan(const MemoryPlanArgs& args) {
  const config::RunConfig& c = args.run;
  MemoryPlan plan;
  int64_t most = -1;
  for (int64_t stage = 0; stage < c.mesh.pipeline; ++stage) {
    plan.stages.push_back(worst_of_stage(c, args.device, stage, c.mesh.expert_reserve));
    const int64_t bytes = total_of(plan.stages.back(), args);
    if (bytes <= most) continue;
    most = bytes;
    plan.stage = plan.stages.size() - 1;
  }
  const RankMemory& worst = plan.worst();
  plan.parts = tensor_parts(worst, c);
  std::vector<MemoryPart> host = host_parts(worst, args);
  if (args.device == DeviceKind::kCpu) {
    plan.parts.insert(plan.parts.end(), host.begin(), host.end());
  } else {
    plan.parts.push_back({"driver and libraries", kGpuLibraries, "assumed"});
    plan.host = std::move(host);
  }
  plan.bytes = plan.one_sided_bytes = most;
  if (c.mesh.expert > 1) {
    const DryRun loaded{.run = c, .device = args.device, .at = worst.at, .load = kAllToOneRank};
    plan.one_sided_bytes = std::max(most, total_of(dry_run(loaded), args));
  }
  const auto nothing = [](const MemoryPart& part) { return part.bytes == 0; };
  std::erase_if(plan.parts, nothing);
  std::erase_if(plan.host, nothing);
  return plan;
}

int64_t activations_to_reserve(const config::RunConfig& c, int64_t rank) {
  if (c.mesh.expert == 1 || c.mesh.expert_reserve == 0) return 0;
  const DryRun args{.run = c,
                    .device = c.run.device == config::Device::kCuda ? DeviceKind::kCuda : DeviceKind::kCpu,
                    .at = mesh::coordinates_of(training::shape_of(c.mesh), rank),
                    .load = c.mesh.expert_reserve};
  return dry_run(args).of(MemoryKind::kActivations);
}

}  // namespace ashlar::plan
