#include "parallel/zero/shard_plan.h"

#include <algorithm>

namespace ashlar::zero {

nn::FlatRanges ShardPlan::owned_by(int64_t rank) const {
  nn::FlatRanges owned;
  for (const Bucket& bucket : buckets) {
    const comm::Range& part = bucket.parts.at(rank);
    owned.add(bucket.begin + part.begin, part.size());
  }
  return owned;
}

ShardPlan make_plan(const nn::ParameterStore& store, const PlanSpec& spec) {
  constexpr int64_t kAlign = 64;
  ASHLAR_CHECK(spec.ranks >= 1 && spec.bucket_elems >= 1, spec.ranks, " ranks, buckets of ", spec.bucket_elems);
  const auto& parameters = store.parameters();
  const auto alone = [&](size_t i) {
    const auto& tensors = parameters[i]->tensors;
    return parameters[i]->shared_vector_axes() == 0 &&
           std::any_of(tensors.begin(), tensors.end(),
                       [](const nn::ShardedTensor& p) { return p.grad_partial_axes != 0; });
  };
  const auto together = [&](size_t i, size_t j) {
    return !alone(i) && !alone(j) && parameters[i]->shared_vector_axes() == parameters[j]->shared_vector_axes();
  };
  const auto offset = [&](size_t i) { return i < parameters.size() ? parameters[i]->flat_offset : store.flat_size(); };
  ShardPlan plan;
  for (size_t first = 0; first < parameters.size();) {
    size_t last = first + 1;
    while (last < parameters.size() && together(first, last) && offset(last + 1) - offset(first) <= spec.bucket_elems)
      ++last;
    const int64_t size = offset(last) - offset(first);
    plan.buckets.push_back({.begin = offset(first),
                            .size = size,
                            .parts = comm::equal_ranges(size, static_cast<int>(spec.ranks), kAlign),
                            .first_parameter = first,
                            .last_parameter = last});
    first = last;
  }
  return plan;
}

}  // namespace ashlar::zero
