#include "launch/plan/fastest_layout.h"

#include <algorithm>
#include <limits>

#include "core/base/strings.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::plan {

namespace {

constexpr size_t kTriedMeshes = 4;  // with LayoutRequest::any
constexpr double kCostOfPipeline = 1.03, kCostOfTensor = 1.01;

/// A micro-batch and a recomputation on a mesh.
struct Variant {
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::kNone;
  double seconds = 0;  // 0 without a device
  /// True if this variant needs at least the memory of `other`.
  bool needs_more_than(const Variant& other) const {
    return micro_batch >= other.micro_batch && recompute <= other.recompute;
  }
};

struct MeshVariants {
  Choice choice;
  config::RunConfig run;
  std::vector<Variant> variants;  // the fastest first
  int64_t least_bytes = 0;
  double seconds() const { return variants.front().seconds; }
};

/// The mean over all ranks of weights, gradients, master weights and moments: no rank that needs most needs less.
int64_t mean_bytes_of_state(const config::RunConfig& c) {
  const int64_t n = model::count_parameters(c.model).total();
  const int64_t accumulate = size_of(accumulate_dtype(c.run.dtype));
  const int64_t parts = c.mesh.tensor * c.mesh.pipeline;
  return n / (parts * c.mesh.expert) * (size_of(c.run.dtype) + accumulate) + n / (parts * c.mesh.data) * 2 * accumulate;
}

void add_variants(const LayoutRequest& request, MeshVariants& mesh) {
  if (request.any) {
    mesh.variants = {{.micro_batch = 1, .recompute = Recompute::kBlock}};
    return;
  }
  config::RunConfig run = mesh.run;
  const int64_t each = run.train.global_batch / run.mesh.data;
  double cost = run.mesh.pipeline > 1 ? kCostOfPipeline : 1;
  if (run.mesh.tensor > 1) cost *= kCostOfTensor;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kBlock}) {
    for (int64_t size = 1; each % size == 0; size *= 2) {
      if (size > 1 && size * run.train.sequence_length > request.most_tokens) break;
      run.train.micro_batch = size;
      run.train.recompute = recompute;
      const double seconds = request.target.device ? cost * step_time(run, *request.target.device).seconds : 0;
      mesh.variants.push_back({.micro_batch = size, .recompute = recompute, .seconds = seconds});
    }
  }
  std::ranges::stable_sort(mesh.variants, [](const Variant& a, const Variant& b) {
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    if (a.recompute != b.recompute) return a.recompute < b.recompute;
    return a.micro_batch > b.micro_batch;
  });
}

/// All legal meshes with their variants, the fastest first.
std::vector<MeshVariants> legal_meshes(const LayoutRequest& request, const ResolveChoice& resolve) {
  std::vector<MeshVariants> meshes;
  for (const mesh::MeshShape& shape : mesh::shapes_of(request.ranks, request.experts)) {
    MeshVariants mesh;
    mesh.choice.ranks = request.ranks;
    const int64_t tensor = shape[Axis::kTensor];
    std::vector<std::string>& overrides = mesh.choice.overrides;
    overrides = {str_cat("mesh.tensor=", tensor), str_cat("mesh.pipeline=", shape[Axis::kPipeline]),
                 str_cat("mesh.data=", shape.size(kSampleAxes)), "train.micro_batch=1"};
    if (request.experts) overrides.push_back(str_cat("mesh.expert=", shape[Axis::kExpert]));
    try {
      mesh.run = resolve(mesh.choice);
      mesh.run.mesh.sequence_parallel = tensor > 1 && mesh.run.train.sequence_length % tensor == 0;
      if (mesh.run.mesh.sequence_parallel) overrides.emplace_back("mesh.sequence_parallel=true");
      add_variants(request, mesh);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInput) throw;
      continue;  // not legal, or no link between the machines it spans
    }
    mesh.least_bytes = mean_bytes_of_state(mesh.run);
    meshes.push_back(std::move(mesh));
  }
  std::ranges::stable_sort(meshes, {}, &MeshVariants::seconds);
  return meshes;
}

Planned planned_variant(const LayoutRequest& request, const MeshVariants& mesh, const Variant& variant) {
  config::RunConfig run = mesh.run;
  run.train.micro_batch = variant.micro_batch;
  run.train.recompute = variant.recompute;
  return plan_of({.run = run,
                  .device = request.target.kind,
                  .data_bytes = request.data_bytes,
                  .program_bytes = request.program_bytes},
                 request.target);
}

Advice advice_of(const MeshVariants& mesh, const Variant& variant, Planned planned) {
  Advice advice{.choice = mesh.choice, .planned = std::move(planned)};
  advice.choice.overrides.push_back(str_cat("train.micro_batch=", variant.micro_batch));
  advice.choice.overrides.push_back(str_cat("train.recompute=", name_of(variant.recompute)));
  return advice;
}

}  // namespace

LayoutResult fastest_layout(const LayoutRequest& request, const ResolveChoice& resolve) {
  LayoutResult result;
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto fits = [&](const Planned& p) { return request.capacity == 0 || p.memory.bytes <= request.capacity; };
  std::vector<MeshVariants> meshes = legal_meshes(request, resolve);
  if (request.any) {
    std::ranges::stable_sort(meshes, {}, &MeshVariants::least_bytes);
    meshes.resize(std::min(meshes.size(), kTriedMeshes));
  }
  for (const MeshVariants& mesh : meshes) {
    if (result.best && mesh.seconds() >= best_seconds) break;
    if (request.capacity > 0 && mesh.least_bytes > request.capacity) continue;
    const Variant least{.micro_batch = 1, .recompute = Recompute::kBlock};
    Planned smallest = planned_variant(request, mesh, least);
    if (!fits(smallest)) {
      if (!result.nearest || smallest.memory.bytes < result.nearest->memory.bytes) result.nearest = std::move(smallest);
      continue;
    }
    if (request.any) {
      result.best = advice_of(mesh, least, std::move(smallest));
      return result;
    }
    std::vector<Variant> too_large;
    for (const Variant& variant : mesh.variants) {
      if (variant.seconds >= best_seconds) break;
      if (std::ranges::any_of(too_large, [&](const Variant& v) { return variant.needs_more_than(v); })) continue;
      Planned planned = planned_variant(request, mesh, variant);
      if (fits(planned)) {
        best_seconds = variant.seconds;
        result.best = advice_of(mesh, variant, std::move(planned));
        break;
      }
      too_large.push_back(variant);
    }
  }
  if (result.best || result.nearest || meshes.empty()) return result;
  const auto smallest = std::ranges::min_element(meshes, {}, &MeshVariants::least_bytes);
  result.nearest = planned_variant(request, *smallest, {.micro_batch = 1, .recompute = Recompute::kBlock});
  return result;
}

}  // namespace ashlar::plan
