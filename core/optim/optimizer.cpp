#include "core/optim/optimizer.h"
#include "core/nn/init.h"

#include <algorithm>

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

Optimizer::Optimizer(const Ctx& ctx, nn::ParameterStore& store, const AdamWOptions& options, nn::FlatRanges owned)
    : store_(store),
      options_(options),
      owned_(std::move(owned)),
      ranges_(nn::sharded_ranges(store, owned_)),
      separate_master_(store.values().dtype() != ctx.accumulate()) {
  const auto zeros = [&] {
    const Tensor t = ctx.empty(ctx.accumulate(), {owned_.packed_size()}, MemoryKind::kOptimizer);
    ctx.backend.fill({.dst = t.mut_view(), .value = 0}, ctx.stream);
    return t;
  };
  master_ = separate_master_ ? zeros() : store.values();
  m_ = zeros();
  v_ = zeros();
  std::vector<UpdateSegment> segments;
  for (const nn::ShardedRange& range : ranges_) {
    segments.push_back({.flat_begin = range.flat_begin,
                        .packed_begin = range.packed_at,
                        .size = range.size,
                        .weight_decay = decay_of(range.ref->tensor->role, options)});
  }
  std::sort(segments.begin(), segments.end(),
            [](const UpdateSegment& a, const UpdateSegment& b) { return a.flat_begin < b.flat_begin; });
  segments_ = ctx.upload_table(segments, MemoryKind::kOptimizer);
}

void Optimizer::initialize(const Ctx& ctx, uint64_t seed) {
  nn::initialize(ctx, seed, ranges_, master());
  copy_master_to_params(ctx);
}

void Optimizer::copy_master_to_params(const Ctx& ctx) {
  if (!separate_master_) return;
  for (const nn::FlatRange& part : owned_.all()) {
    if (part.size == 0) continue;
    ctx.backend.copy({.src = master_.flat_range(part.packed_at, part.size).view(),
                      .dst = store_.values().flat_range(part.begin, part.size).mut_view()},
                     ctx.stream);
  }
}

void Optimizer::step(const Ctx& ctx, const ConstView& clip) {
  const MutView values = store_.values().mut_view();
  ctx.backend.adamw({.grad = store_.grads().view(),
                     .master = separate_master_ ? master_.mut_view() : values,
                     .m = m_.mut_view(),
                     .v = v_.mut_view(),
                     .weights = separate_master_ ? values : MutView{},
                     .segments = segments_.view(),
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .scalars = ctx.scalars,
                     .clip = clip},
                    ctx.stream);
}

}  // namespace ashlar::optim
