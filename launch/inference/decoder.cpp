#include "launch/inference/decoder.h"

#include <numeric>

#include "parallel/model/logits.h"

namespace ashlar::inference {

namespace {

/// Tokens of one sample at positions first, first+1, ... in device memory.
struct Tokens {
  Tensor ids, positions;
  model::BatchView view;

  Tokens(const Ctx& ctx, std::span<const int32_t> tokens, int64_t first) {
    const int64_t n = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> at(n);
    std::iota(at.begin(), at.end(), static_cast<int32_t>(first));
    ids = ctx.empty(DType::kInt32, {n});
    positions = ctx.empty(DType::kInt32, {n});
    ctx.backend.write(tokens.data(), ids.mut_view(), ctx.stream);
    ctx.backend.write(at.data(), positions.mut_view(), ctx.stream);
    view = {.B = 1, .T = n, .ids = ids.view(), .positions = positions.view()};
  }
};

std::vector<double> last_row(const Ctx& ctx, const model::Stage& stage, const Tensor& hidden) {
  const Tensor logits = stage.logits(ctx, hidden.row_range(hidden.rows() - 1, 1));
  std::vector<double> out = ctx.download_numbers(logits);
  model::finish_logits(stage.config(), out);
  return out;
}

}  // namespace

Decoder::Decoder(training::Engine& engine, int64_t max_tokens, bool use_cache) : engine_(engine) {
  ASHLAR_CHECK(engine.chunks().size() == 1 && !engine.options().sequence_parallel,
               "expected one chunk per stage and no sequence parallel for decoding");
  if (use_cache) cache_ = engine.chunks().front()->make_cache(engine.ctx(), 1, max_tokens);
}

void Decoder::forget() {
  if (cache_) cache_->length = 0;
}

std::vector<double> Decoder::next_logits(std::span<const int32_t> text) {
  const Ctx ctx = engine_.ctx();
  const model::Stage& stage = *engine_.chunks().front();
  mesh::Mesh& mesh = engine_.mesh();
  const int64_t held = cache_ ? cache_->length : 0;
  const Tokens fresh(ctx, text.subspan(held), held);
  const auto at = static_cast<int>(mesh.at()[Axis::kPipeline]);

  Var rows;
  if (!stage.range().embedding) {
    rows.value = ctx.empty(ctx.dtype, {fresh.view.rows(), stage.config().d_model});
    mesh.group(Axis::kPipeline).recv({.data = rows.value.mut_view(), .from = at - 1}, ctx.stream).wait(ctx.stream);
  }
  if (cache_) {
    rows.value = stage.decode(ctx, rows.value, fresh.view, *cache_);
  } else {
    rows = stage.blocks(ctx, rows.value ? rows : stage.embed(ctx, fresh.view), fresh.view);
  }
  if (stage.range().head) return last_row(ctx, stage, rows.value);
  mesh.group(Axis::kPipeline).send({.data = rows.value.view(), .to = at + 1}, ctx.stream).wait(ctx.stream);
  return {};
}

}  // namespace ashlar::inference
