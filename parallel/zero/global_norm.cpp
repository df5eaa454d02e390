#include "parallel/zero/global_norm.h"

#include <algorithm>
#include <map>

#include "parallel/comm/host.h"

namespace ashlar::zero {

GlobalNorm::GlobalNorm(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
                       mesh::Mesh& mesh)
    : mesh_(mesh) {
  std::vector<std::string> lines;  // each "NAME ELEMENTS"
  for (const auto& ref : store.sharded_tensors())
    lines.push_back(str_cat(ref.tensor->name, " ", ref.tensor->global_shape.size()));
  std::map<std::string, int64_t> all_tensors;
  for (const std::string& line : comm::unite_texts(mesh.control(), std::move(lines))) {
    const size_t space = line.rfind(' ');
    all_tensors.emplace(line.substr(0, space), std::stoll(line.substr(space + 1)));
  }
  for (const auto& [name, elements] : all_tensors) {
    names_.push_back(name);
    elements_.push_back(elements);
  }
  for (const bool packed : {false, true}) tables_.push_back(table(ctx, ranges, packed));
}

optim::SquaresTable GlobalNorm::table(const Ctx& ctx, std::span<const nn::ShardedRange> ranges, bool packed) const {
  std::vector<SquaresSegment> segments;
  for (const nn::ShardedRange& range : ranges) {  // ordered by name
    const nn::ShardedTensor& tensor = *range.ref->tensor;
    if (!tensor.main_replica) continue;
    segments.push_back({.begin = packed ? range.packed_at : range.flat_begin,
                        .size = range.size,
                        .first = range.first,
                        .slot = std::lower_bound(names_.begin(), names_.end(), tensor.name) - names_.begin()});
  }
  return {ctx, std::move(segments)};
}

void GlobalNorm::sum(const Ctx& ctx, const nn::FlatTensor& buffer, const Tensor& sums) const {
  tables_[buffer.packed ? 1 : 0].sum(ctx, buffer.data, sums.flat_range(0, static_cast<int64_t>(names_.size())));
  for (const AxisSet axes : {AxisSet(Axis::kTensor), kReplicaAxes, AxisSet(Axis::kPipeline)})
    mesh_.group(axes)
        .all_reduce({.in = sums.view(), .out = sums.mut_view(), .op = comm::ReduceOp::kSum}, ctx.stream)
        .wait(ctx.stream);
}

std::vector<double> GlobalNorm::sums_of(const Ctx& ctx, const nn::FlatTensor& buffer) const {
  const Tensor sums = ctx.empty(DType::kFloat64, {static_cast<int64_t>(names_.size())}, MemoryKind::kWorkspace);
  sum(ctx, buffer, sums);
  std::vector<double> host(names_.size());
  ctx.backend.read(sums.view(), host.data(), ctx.stream);
  return host;
}

}  // namespace ashlar::zero
