#include "parallel/tensor/shared_gradients.h"

namespace ashlar::tensor {

void sum_shared_gradients(const Ctx& ctx, const nn::ParameterStore& store, uint32_t axis, comm::Communicator& group) {
  int64_t size = 0;
  for (const auto& ref : store.pieces()) size += (ref.piece->sum_axes & axis) != 0 ? ref.piece->size() : 0;
  if (size == 0 || group.size() == 1) return;
  const Tensor packed = ctx.empty(store.grads().dtype(), {size}, MemoryKind::kWorkspace);
  const auto each = [&](auto&& visit) {  // in global-name order, which all ranks share
    int64_t at = 0;
    for (const auto& ref : store.pieces()) {
      if ((ref.piece->sum_axes & axis) == 0) continue;
      const int64_t n = ref.piece->size();
      visit(store.grads().flat_range(ref.slab_begin, n), packed.flat_range(at, n));
      at += n;
    }
  };
  each([&](const Tensor& grad, const Tensor& place) {
    ctx.backend.copy({.src = grad.view(), .dst = place.mut_view()}, ctx.stream);
  });
  group.all_reduce({.in = packed.view(), .out = packed.mut_view(), .op = comm::ReduceOp::kSum}).wait();
  each([&](const Tensor& grad, const Tensor& place) {
    ctx.backend.copy({.src = place.view(), .dst = grad.mut_view()}, ctx.stream);
  });
}

}  // namespace ashlar::tensor
