#include "launch/training/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace ashlar::training {

namespace {

constexpr uint64_t kSamplingSite = site_of("generate");

std::vector<double> last_row(const Ctx& ctx, const model::Stage& stage, const Tensor& hidden) {
  const Tensor logits = stage.logits(ctx, hidden.row_range(hidden.rows() - 1, 1));
  std::vector<double> out(logits.size());
  if (logits.dtype() == DType::kFloat64) {
    ctx.backend.copy_to_host(logits.view(), out.data(), ctx.stream);
  } else {
    std::vector<float> narrow(logits.size());
    ctx.backend.copy_to_host(logits.view(), narrow.data(), ctx.stream);
    out.assign(narrow.begin(), narrow.end());
  }
  return out;
}

// One sample of tokens at positions first, first+1, ... as device memory.
struct Tokens {
  Tensor ids, positions;
  model::BatchView view;

  Tokens(const Ctx& ctx, std::span<const int32_t> tokens, int64_t first) {
    const int64_t n = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> at(n);
    std::iota(at.begin(), at.end(), static_cast<int32_t>(first));
    ids = ctx.empty(DType::kInt32, {n});
    positions = ctx.empty(DType::kInt32, {n});
    ctx.backend.copy_from_host(tokens.data(), ids.mut_view(), ctx.stream);
    ctx.backend.copy_from_host(at.data(), positions.mut_view(), ctx.stream);
    view = {.B = 1, .T = n, .ids = ids.view().as<int32_t>(), .positions = positions.view().as<int32_t>()};
  }
};

}  // namespace

std::vector<double> sampling_distribution(std::span<const double> logits, int64_t vocab, const SamplingOptions& o) {
  std::vector<int32_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(vocab, 0.0);
  if (o.temperature == 0) {
    p[ids[0]] = 1;
    return p;
  }
  const int64_t k = o.top_k > 0 ? std::min(o.top_k, vocab) : vocab;
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += p[ids[i]] = std::exp((logits[ids[i]] - logits[ids[0]]) / o.temperature);
  double reached = 0;
  int64_t kept = 0;
  while (kept < k && (kept == 0 || reached < o.top_p * sum)) reached += p[ids[kept++]];
  for (int64_t i = 0; i < vocab; ++i) p[ids[i]] = i < kept ? p[ids[i]] / reached : 0;
  return p;
}

int32_t draw(std::span<const double> distribution, double uniform) {
  int32_t last = 0;
  double below = 0;
  for (size_t i = 0; i < distribution.size(); ++i) {
    if (distribution[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    below += distribution[i];
    if (uniform < below) return last;
  }
  return last;  // rounding left the sum a hair under one
}

void generate(Engine& engine, const GenerateOptions& o, const std::function<void(int32_t)>& emit) {
  ASHLAR_CHECK(!o.prompt.empty(), "generation needs a first token");
  const Ctx ctx = engine.ctx();
  const model::ModelConfig& config = engine.stage().config();
  const int64_t wanted = static_cast<int64_t>(o.prompt.size()) + o.new_tokens;
  const int64_t limit = config.pos.type == model::PosType::kLearned ? config.pos.max_positions : wanted;
  const int64_t capacity = std::min(limit, wanted);
  const model::Stage& stage = engine.stage();

  std::vector<int32_t> context = o.prompt;  // what the model sees
  const auto keep_newest = [&](int64_t n) {
    context.erase(context.begin(), context.end() - std::min<int64_t>(n, context.size()));
  };
  if (static_cast<int64_t>(context.size()) > capacity) keep_newest(capacity);

  std::optional<model::KvCache> cache;
  if (o.use_cache) cache.emplace(ctx, config, stage.slices().kv_heads.size, 1, capacity);
  const auto logits_of_context = [&] {
    if (!cache) {
      const Tokens all(ctx, context, 0);
      return last_row(ctx, stage, stage.blocks(ctx, stage.embed(ctx, all.view), all.view).value);
    }
    const Tokens fresh(ctx, std::span(context).subspan(cache->length), cache->length);
    return last_row(ctx, stage, stage.decode(ctx, fresh.view, *cache));
  };

  for (int64_t n = 0; n < o.new_tokens; ++n) {
    const std::vector<double> distribution = sampling_distribution(logits_of_context(), config.vocab_size, o.sampling);
    const Philox::Counter words = Philox::block(o.sampling.seed, kSamplingSite, static_cast<uint64_t>(n));
    const double uniform = (static_cast<double>(words[0]) * 0x1p32 + words[1]) * 0x1p-64;
    const int32_t id = draw(distribution, uniform);
    emit(id);
    if (id == o.stop_id) return;
    if (static_cast<int64_t>(context.size()) == capacity) {
      keep_newest(std::max<int64_t>(capacity / 2, 1) - 1);
      if (cache) cache->length = 0;
    }
    context.push_back(id);
  }
}

}  // namespace ashlar::training
