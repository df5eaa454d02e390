#include "parallel/zero/shard_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>

namespace ashlar::zero {

namespace {

/// The last of the equal parts is larger than the others by less than 1/kOfAPart of a part.
constexpr int64_t kOfAPart = 16;

std::vector<comm::Range> equal_parts(int64_t size, int64_t ranks) {
  int64_t unit = 64;
  while (unit > 1 && unit * kOfAPart * ranks * ranks > size) unit /= 2;
  return comm::equal_ranges(size, static_cast<int>(ranks), unit);
}

bool is_shared(const nn::Parameter& parameter) {
  const auto& tensors = parameter.tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const nn::ShardedTensor& p) { return !p.axes.summed_in_replica().empty(); });
}

/// Returns the starts of a bucket's tensors and the bucket's end, relative to the bucket's start. Elements without a
/// tensor belong to the tensor before them.
std::vector<int64_t> tensor_bounds(const nn::ParameterStore& store, const Bucket& bucket) {
  std::vector<int64_t> bounds = {0, bucket.size};
  for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i) {
    const nn::Parameter& parameter = *store.parameters()[i];
    for (const nn::ShardedTensor& tensor : parameter.tensors)
      bounds.push_back(parameter.flat_begin(tensor) - bucket.begin);
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

/// Divides [0, bounds.back()) into one contiguous part per replica. Parts begin and end at elements of `bounds`, and
/// the sum over replicas of (load + part size)^2 is minimal.
std::vector<comm::Range> even_loads(const std::vector<int64_t>& bounds, const std::vector<double>& loads) {
  const size_t ranks = loads.size(), n = bounds.size();
  // Dynamic programming over replicas. least[i]: minimum cost when replicas 0..r hold [0, bounds[i]). from[r][i]: index
  // in bounds where the part of replica r starts in that solution.
  std::vector<double> least(n, std::numeric_limits<double>::infinity());
  least[0] = 0;
  std::vector<std::vector<size_t>> from(ranks, std::vector<size_t>(n));
  for (size_t r = 0; r < ranks; ++r) {
    std::vector<double> next(n, std::numeric_limits<double>::infinity());
    for (size_t end = 0; end < n; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const double load = loads[r] + static_cast<double>(bounds[end] - bounds[begin]);
        if (const double sum = least[begin] + load * load; sum < next[end]) next[end] = sum, from[r][end] = begin;
      }
    }
    least = std::move(next);
  }
  std::vector<comm::Range> parts(ranks);
  size_t end = n - 1;
  for (size_t r = ranks; r-- > 0; end = from[r][end]) parts[r] = {bounds[from[r][end]], bounds[end]};
  return parts;
}

/// Ranks that share a parameter must divide it in the same way, although they hold different other parameters and so
/// have different loads. So shared parameters are divided without regard to the loads. They come first, so that the
/// other buckets can balance the loads.
void split_between_tensors(const nn::ParameterStore& store, const mesh::MeshShape& mesh, std::span<Bucket> buckets) {
  const auto shared = [&](const Bucket& bucket) { return is_shared(*store.parameters()[bucket.first_parameter]); };
  std::vector<size_t> order(buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    return std::pair(shared(buckets[j]), buckets[j].size) < std::pair(shared(buckets[i]), buckets[i].size);
  });
  std::map<AxisSet, std::vector<double>> loads_of;
  for (const size_t i : order) {
    Bucket& bucket = buckets[i];
    const std::vector<double> none(static_cast<size_t>(mesh.size(bucket.replicas)), 0.0);
    std::vector<double>& loads = loads_of.try_emplace(bucket.replicas, none).first->second;
    bucket.parts = even_loads(tensor_bounds(store, bucket), shared(bucket) ? none : loads);
    for (size_t r = 0; r < loads.size(); ++r) loads[r] += static_cast<double>(bucket.parts[r].size());
  }
}

}  // namespace

nn::FlatRanges ShardPlan::owned_by(const mesh::MeshShape& mesh, const mesh::Coordinates& at) const {
  nn::FlatRanges owned;
  for (const Bucket& bucket : buckets) {
    const comm::Range& part = bucket.parts.at(static_cast<size_t>(mesh::index_of(mesh, at, bucket.replicas)));
    owned.add(bucket.begin + part.begin, part.size());
  }
  return owned;
}

int64_t default_bucket_elems(int64_t ranks) {
  constexpr int64_t kUnit = 8, kClosesAtHalf = 2;
  return std::max(int64_t{8} << 20, kClosesAtHalf * kUnit * kOfAPart * ranks * ranks);
}

ShardPlan make_plan(const nn::ParameterStore& store, const PlanSpec& spec) {
  ASHLAR_CHECK(spec.bucket_elems >= 0, "expected a bucket size of at least 0, got ", spec.bucket_elems);
  const auto& parameters = store.parameters();
  const auto alone = [&](size_t i) { return !parameters[i]->shared_vectors() && is_shared(*parameters[i]); };
  const auto together = [&](size_t i, size_t j) {
    return !alone(i) && !alone(j) && parameters[i]->shared_vectors() == parameters[j]->shared_vectors() &&
           parameters[i]->replica_axes() == parameters[j]->replica_axes();
  };
  const auto offset = [&](size_t i) { return i < parameters.size() ? parameters[i]->flat_offset : store.flat_size(); };
  ShardPlan plan;
  for (size_t first = 0; first < parameters.size();) {
    const AxisSet replicas = parameters[first]->replica_axes();
    const int64_t bucket_elems =
        spec.bucket_elems > 0 ? spec.bucket_elems : default_bucket_elems(spec.mesh.size(replicas));
    size_t last = first + 1;
    while (last < parameters.size() && together(first, last) && offset(last + 1) - offset(first) <= bucket_elems)
      ++last;
    plan.buckets.push_back({.replicas = replicas,
                            .begin = offset(first),
                            .size = offset(last) - offset(first),
                            .parts = {},
                            .first_parameter = first,
                            .last_parameter = last});
    first = last;
  }
  switch (spec.shard_unit) {
    case optim::ShardUnit::kElement:
      for (Bucket& bucket : plan.buckets) bucket.parts = equal_parts(bucket.size, spec.mesh.size(bucket.replicas));
      break;
    case optim::ShardUnit::kTensor: split_between_tensors(store, spec.mesh, plan.buckets); break;
  }
  return plan;
}

}  // namespace ashlar::zero
