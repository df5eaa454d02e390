#include "parallel/tensor/shared_gradients.h"

#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::tensor {

void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
                          uint32_t axis, comm::Communicator& group) {
  int64_t size = 0;
  for (const auto& range : ranges) size += (range.ref->tensor->grad_partial_axes & axis) != 0 ? range.size : 0;
  if (size == 0 || group.size() == 1) return;
  const Tensor packed = ctx.empty(store.grads().dtype(), {size}, MemoryKind::kWorkspace);
  const auto each = [&](auto&& visit) {  // in global-name order, which all ranks share
    int64_t at = 0;
    for (const auto& range : ranges) {
      if ((range.ref->tensor->grad_partial_axes & axis) == 0) continue;
      visit(store.grads().flat_range(range.flat_begin, range.size), packed.flat_range(at, range.size));
      at += range.size;
    }
  };
  each([&](const Tensor& grad, const Tensor& place) {
    ctx.backend.copy({.src = grad.view(), .dst = place.mut_view()}, ctx.stream);
  });
  group.all_reduce({.in = packed.view(), .out = packed.mut_view(), .op = comm::ReduceOp::kSum}, ctx.stream)
      .wait(ctx.stream);
  each([&](const Tensor& grad, const Tensor& place) {
    ctx.backend.copy({.src = place.view(), .dst = grad.mut_view()}, ctx.stream);
  });
}

void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
                          mesh::Mesh& mesh) {
  sum_shared_gradients(ctx, store, ranges, kPartialTensor, mesh.tensor());
  sum_shared_gradients(ctx, store, ranges, kPartialKvGroup, mesh.sharers());
  if (mesh.ends() != nullptr) sum_shared_gradients(ctx, store, ranges, kPartialStages, *mesh.ends());
}

}  // namespace ashlar::tensor
