#include "core/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ashlar::optim {

double decay_of(nn::Role role, const AdamWOptions& options) {
  switch (role) {
    case nn::Role::kMatrix: return options.weight_decay;
    case nn::Role::kEmbedding:
    case nn::Role::kPosition: return options.decay_embeddings ? options.weight_decay : 0;
    case nn::Role::kNorm:
    case nn::Role::kBias: return 0;
  }
  throw Bug("[optimizer] unknown role");
}

Optimizer::Optimizer(const Ctx& ctx, nn::ParameterStore& store, const AdamWOptions& options)
    : store_(store), options_(options), separate_master_(store.values().dtype() != ctx.accumulate()) {
  const Shape shape{store.slab_size()};
  const auto zeros = [&] {
    const Tensor t = ctx.empty(ctx.accumulate(), shape, MemoryKind::kOptimizer);
    ctx.backend.fill({.dst = t.mut_view(), .value = 0}, ctx.stream);
    return t;
  };
  master_ = separate_master_ ? zeros() : store.values();
  m_ = zeros();
  v_ = zeros();
  for (const auto& ref : store.pieces()) {
    segments_.push_back({.offset = ref.slab_begin,
                         .size = ref.piece->size(),
                         .lr_multiplier = 1,
                         .weight_decay = decay_of(ref.piece->role, options)});
  }
  std::sort(segments_.begin(), segments_.end(),
            [](const AdamWSegment& a, const AdamWSegment& b) { return a.offset < b.offset; });
}

void Optimizer::initialize(const Ctx& ctx, uint64_t seed) {
  store_.initialize(ctx, seed, master_);
  publish(ctx);
}

void Optimizer::publish(const Ctx& ctx) {
  if (separate_master_) ctx.backend.copy({.src = master_.view(), .dst = store_.values().mut_view()}, ctx.stream);
}

void Optimizer::step(const Ctx& ctx) {
  ctx.backend.adamw({.grad = store_.grads().view(),
                     .master = master_.mut_view(),
                     .m = m_.mut_view(),
                     .v = v_.mut_view(),
                     .weights = separate_master_ ? store_.values().mut_view() : MutView{},
                     .segments = segments_,
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .scalars = ctx.scalars},
                    ctx.stream);
}

double sum_squares(const Ctx& ctx, const Tensor& t) {
  const int64_t num_chunks = SumSquares::num_chunks(t.size());
  const Tensor partials = ctx.empty(DType::kFloat64, {num_chunks}, MemoryKind::kWorkspace);
  ctx.backend.sum_squares({.x = t.flat_range(0, t.size()).view(), .partials = partials.mut_view()}, ctx.stream);
  std::vector<double> host(num_chunks);
  ctx.backend.copy_to_host(partials.view(), host.data(), ctx.stream);
  return std::accumulate(host.begin(), host.end(), 0.0);
}

GradNorm grad_norm(const Ctx& ctx, const nn::ParameterStore& store, const Tensor& slab) {
  int64_t num_chunks = 0;
  for (const auto& ref : store.pieces()) num_chunks += SumSquares::num_chunks(ref.piece->size());
  const Tensor partials = ctx.empty(DType::kFloat64, {num_chunks}, MemoryKind::kWorkspace);
  int64_t at = 0;
  for (const auto& ref : store.pieces()) {
    const int64_t n = SumSquares::num_chunks(ref.piece->size());
    ctx.backend.sum_squares({.x = slab.flat_range(ref.slab_begin, ref.piece->size()).view(),
                             .partials = partials.flat_range(at, n).mut_view()},
                            ctx.stream);
    at += n;
  }
  std::vector<double> host(num_chunks);
  ctx.backend.copy_to_host(partials.view(), host.data(), ctx.stream);

  GradNorm result;
  double total = 0;
  at = 0;
  for (const auto& ref : store.pieces()) {
    const int64_t n = SumSquares::num_chunks(ref.piece->size());
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += host[at + i];
    at += n;
    if (!std::isfinite(sum) && result.first_non_finite.empty()) result.first_non_finite = ref.piece->name;
    result.squares.push_back(sum);
    if (ref.piece->counted) total += sum;
  }
  result.norm = std::sqrt(total);
  return result;
}

}  // namespace ashlar::optim
