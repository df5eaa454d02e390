#include "core/optim/optimizer.h"

#include <algorithm>

#include "core/nn/init.h"

namespace ashlar::optim {

const Rule& rule_of(OptimizerKind kind) {
  switch (kind) {
#define ASHLAR_RULE(kind, word, rule) \
  case OptimizerKind::kind: return rule();
    ASHLAR_UPDATE_RULES(ASHLAR_RULE)
#undef ASHLAR_RULE
  }
  throw Bug("[optimizer] unknown kind");
}

std::unique_ptr<Optimizer> make_optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options,
                                          nn::FlatRanges owned) {
  return rule_of(options.kind).make(ctx, store, options, std::move(owned));
}

double decay_of(nn::Role role, const OptimizerOptions& options) {
  switch (role) {
    case nn::Role::kMatrix:
    case nn::Role::kExpert: return options.weight_decay;
    case nn::Role::kEmbedding:
    case nn::Role::kPosition: return options.decay_embeddings ? options.weight_decay : 0;
    case nn::Role::kNorm:
    case nn::Role::kBias: return 0;
  }
  throw Bug("[optimizer] unknown role");
}

double lr_scale_of(nn::Role role, const OptimizerOptions& options) {
  return role == nn::Role::kExpert ? options.expert_lr_scale : 1;
}

Optimizer::Optimizer(const Ctx& ctx, nn::ParameterStore& store, const OptimizerOptions& options, nn::FlatRanges owned)
    : store_(store),
      options_(options),
      owned_(std::move(owned)),
      ranges_(nn::sharded_ranges(store, owned_)),
      separate_master_(store.values().dtype() != ctx.accumulate()) {
  const auto zeros = [&](DType dtype) {
    const Tensor t = ctx.empty(dtype, {owned_.packed_size()}, MemoryKind::kOptimizer);
    ctx.backend.fill({.dst = t.mut_view(), .value = 0}, ctx.stream);
    return t;
  };
  master_ = separate_master_ ? zeros(ctx.accumulate()) : store.values();
  const DType state_dtype = options.state_dtype == StateDType::kBFloat16 ? DType::kBFloat16 : ctx.accumulate();
  for (const StateName& name : rule_of(options.kind).state)
    state_.push_back({.name = name, .tensor = {.data = zeros(state_dtype), .packed = true}});
  std::vector<UpdateSegment> segments;
  for (const nn::ShardedRange& range : ranges_) {
    const nn::ShardedTensor& tensor = *range.ref->tensor;
    const int64_t global_cols = tensor.global_shape.cols();
    segments.push_back({.flat_begin = range.flat_begin,
                        .packed_begin = range.packed_at,
                        .size = range.size,
                        .lr_multiplier = lr_scale_of(tensor.role, options),
                        .weight_decay = decay_of(tensor.role, options),
                        .first = range.first,
                        .global_begin = tensor.global_row * global_cols + tensor.global_col,
                        .cols = tensor.cols,
                        .row_gap = global_cols - tensor.cols,
                        .rng_stream = static_cast<uint32_t>(hash64(tensor.name + ".state"))});
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

const nn::FlatTensor& Optimizer::state(std::string_view suffix) const {
  const auto at = std::find_if(state_.begin(), state_.end(), [&](const State& s) { return s.name.suffix == suffix; });
  ASHLAR_CHECK(at != state_.end(), "no state tensor ", suffix, " of ", name_of(options_.kind));
  return at->tensor;
}

Update Optimizer::update(const Ctx& ctx, const ConstView& clip) const {
  const MutView values = store_.values().mut_view();
  return {.grad = store_.grads().view(),
          .master = separate_master_ ? master_.mut_view() : values,
          .weights = separate_master_ ? values : MutView{},
          .segments = segments_.view(),
          .scalars = ctx.scalars,
          .clip = clip,
          .seed = options_.rounding_seed};
}

}  // namespace ashlar::optim
