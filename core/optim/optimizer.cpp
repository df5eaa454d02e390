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
  for (const nn::FlatRange& part : owned_.all()) {
    std::vector<AdamWSegment>& segments = segments_.emplace_back();
    for (const nn::ShardedRange& range : ranges_) {
      if (range.flat_begin < part.begin || range.flat_begin >= part.end()) continue;
      segments.push_back({.offset = range.flat_begin - part.begin,
                          .size = range.size,
                          .lr_multiplier = 1,
                          .weight_decay = decay_of(range.ref->tensor->role, options)});
    }
    std::sort(segments.begin(), segments.end(),
              [](const AdamWSegment& a, const AdamWSegment& b) { return a.offset < b.offset; });
  }
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
  for (size_t i = 0; i < segments_.size(); ++i) {
    const nn::FlatRange& part = owned_.all()[i];
    if (segments_[i].empty()) continue;
    const auto packed = [&](const Tensor& t) { return t.flat_range(part.packed_at, part.size).mut_view(); };
    const MutView values = store_.values().flat_range(part.begin, part.size).mut_view();
    ctx.backend.adamw({.grad = store_.grads().flat_range(part.begin, part.size).view(),
                       .master = separate_master_ ? packed(master_) : values,
                       .m = packed(m_),
                       .v = packed(v_),
                       .weights = separate_master_ ? values : MutView{},
                       .segments = segments_[i],
                       .beta1 = options_.beta1,
                       .beta2 = options_.beta2,
                       .eps = options_.eps,
                       .scalars = ctx.scalars,
                       .clip = clip},
                      ctx.stream);
  }
}

double sum_squares(const Ctx& ctx, const Tensor& t) {
  const int64_t num_chunks = SumSquares::num_chunks(t.size());
  const Tensor partials = ctx.empty(DType::kFloat64, {num_chunks}, MemoryKind::kWorkspace);
  ctx.backend.sum_squares({.x = t.flat_range(0, t.size()).view(), .partials = partials.mut_view()}, ctx.stream);
  std::vector<double> host(num_chunks);
  ctx.backend.copy_to_host(partials.view(), host.data(), ctx.stream);
  return std::accumulate(host.begin(), host.end(), 0.0);
}

std::vector<double> tensor_squares(const Ctx& ctx, const nn::ParameterStore& store,
                                   std::span<const nn::ShardedRange> ranges, const nn::FlatTensor& buffer) {
  std::vector<double> squares(store.sharded_tensors().size(), 0.0);
  // Of a range: what is left of the chunk that it begins in, then whole chunks.
  const auto head_of = [](const nn::ShardedRange& range) {
    const int64_t into = range.first % SumSquares::kChunk;
    return into == 0 ? 0 : std::min(range.size, SumSquares::kChunk - into);
  };
  const auto chunks_of = [&](const nn::ShardedRange& range) {
    const int64_t head = head_of(range);
    return (head > 0 ? 1 : 0) + SumSquares::num_chunks(range.size - head);
  };
  int64_t num_chunks = 0;
  for (const nn::ShardedRange& range : ranges) num_chunks += chunks_of(range);
  if (num_chunks == 0) return squares;
  const Tensor partials = ctx.empty(DType::kFloat64, {num_chunks}, MemoryKind::kWorkspace);
  int64_t at = 0;
  for (const nn::ShardedRange& range : ranges) {
    const Tensor x = buffer.of(range);
    const auto sum = [&](int64_t begin, int64_t size) {
      const int64_t n = SumSquares::num_chunks(size);
      if (n == 0) return;
      ctx.backend.sum_squares(
          {.x = x.flat_range(begin, size).view(), .partials = partials.flat_range(at, n).mut_view()}, ctx.stream);
      at += n;
    };
    const int64_t head = head_of(range);
    sum(0, head);
    sum(head, range.size - head);
  }
  std::vector<double> host(num_chunks);
  ctx.backend.copy_to_host(partials.view(), host.data(), ctx.stream);
  at = 0;
  for (const nn::ShardedRange& range : ranges) {
    const int64_t n = chunks_of(range);
    squares[range.ref - store.sharded_tensors().data()] +=
        std::accumulate(host.begin() + at, host.begin() + at + n, 0.0);
    at += n;
  }
  return squares;
}

std::optional<size_t> first_non_finite(std::span<const double> squares) {
  const auto at = std::find_if(squares.begin(), squares.end(), [](double s) { return !std::isfinite(s); });
  if (at == squares.end()) return std::nullopt;
  return static_cast<size_t>(at - squares.begin());
}

GradNorm grad_norm(const Ctx& ctx, const nn::ParameterStore& store, const Tensor& buffer) {
  GradNorm result;
  result.squares =
      tensor_squares(ctx, store, nn::sharded_ranges(store, nn::FlatRanges::whole(store)), {.data = buffer});
  if (const auto bad = first_non_finite(result.squares))
    result.first_non_finite = store.sharded_tensors()[*bad].tensor->name;
  double total = 0;
  for (size_t i = 0; i < result.squares.size(); ++i)
    if (store.sharded_tensors()[i].tensor->main_replica) total += result.squares[i];
  result.norm = std::sqrt(total);
  return result;
}

}  // namespace ashlar::optim
