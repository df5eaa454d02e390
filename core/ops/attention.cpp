#include "core/ops/attention.h"

namespace ashlar::ops {

namespace {

/// Rows behind those that a cache holds; a sample's rows are `capacity` apart.
void append(const Ctx& ctx, const AttentionOptions& o, const Tensor& rows, const Tensor& held,
            const AttentionCache& cache) {
  for (int64_t b = 0; b < o.B; ++b) {
    ctx.backend.copy({.src = rows.row_range(b * o.T, o.T).view(),
                      .dst = held.row_range(b * cache.capacity + cache.length, o.T).mut_view()},
                     ctx.stream);
  }
}

/// All rows that a cache holds once new ones are in it; the batch stride tells where a sample begins.
ConstView held_rows(const Tensor& held, int64_t rows) {
  ConstView view = held.view();
  view.rows = rows;
  return view;
}

}  // namespace

Var attention(const Ctx& ctx, const Var& qkv, const AttentionOptions& o, const AttentionCache* cache) {
  const int64_t N = o.B * o.T, q_width = o.H * o.D, kv_width = o.G * o.D;
  ASHLAR_SHAPE(qkv, {N, q_width + 2 * kv_width});
  const int64_t batch_stride = o.T * qkv.value.row_stride();
  const Made made =
      place(ctx, "attention", qkv, {{Placement::kColumnsSplit, Placement::kColumnsSplit}}, {o.sinks, o.t5_bias});
  if (o.sinks != nullptr) ASHLAR_SHAPE(*o.sinks, {o.H});
  DropoutArgs dropout = ctx.dropout_args(o.dropout, o.dropout_site);
  dropout.head0 = o.head0;
  dropout.heads = o.global_heads > 0 ? o.global_heads : o.H;
  AttentionShape shape{.variant = o.variant,
                       .B = o.B,
                       .T_q = o.T,
                       .T_kv = o.T,
                       .H = o.H,
                       .G = o.G,
                       .D = o.D,
                       .q_batch_stride = batch_stride,
                       .kv_batch_stride = batch_stride,
                       .doc_start = o.doc_start,
                       .alibi_slopes = o.alibi_slopes,
                       .sinks = o.sinks == nullptr ? ConstView{} : o.sinks->read(ctx.stream).view(),
                       .t5_bias = o.t5_bias == nullptr ? ConstView{} : o.t5_bias->read(ctx.stream).view(),
                       .t5_buckets = o.t5_buckets,
                       .dropout = dropout};
  const auto q_of = [=](const Tensor& t) { return t.column_range(0, q_width); };
  const auto k_of = [=](const Tensor& t) { return t.column_range(q_width, kv_width); };
  const auto v_of = [=](const Tensor& t) { return t.column_range(q_width + kv_width, kv_width); };

  ConstView k = k_of(qkv.value).view(), v = v_of(qkv.value).view();
  if (cache != nullptr) {
    ASHLAR_CHECK(ctx.tape == nullptr, "attention with a cache records nothing");
    ASHLAR_CHECK(cache->length + o.T <= cache->capacity, "cache of ", cache->capacity, " tokens is full");
    append(ctx, o, k_of(qkv.value), cache->k, *cache);
    append(ctx, o, v_of(qkv.value), cache->v, *cache);
    shape.q_start = cache->length;
    shape.T_kv = cache->length + o.T;
    shape.kv_batch_stride = cache->capacity * kv_width;
    k = held_rows(cache->k, o.B * shape.T_kv);
    v = held_rows(cache->v, o.B * shape.T_kv);
  }
  const Tensor out = ctx.empty(ctx.dtype, {N, q_width});
  const Tensor lse = ctx.empty(ctx.accumulate(), {o.B * o.H * o.T});
  ctx.backend.attention_forward(
      {.q = q_of(qkv.value).view(), .k = k, .v = v, .out = out.mut_view(), .lse = lse.mut_view(), .shape = shape},
      ctx.stream);
  const Var attended = result(ctx, out, made);
  if (ctx.tape == nullptr) return attended;

  ctx.tape->record(attended, [ctx, qkv, out, lse, shape, o, q_of, k_of, v_of](Tape& tape, const Tensor& dout) {
    const GradTarget d = tape.target(qkv);
    if (!d.wanted()) return;
    AttentionShape back = shape;
    // Read again: where parameters are gathered anew between forward and backward the value has another place.
    if (o.sinks != nullptr) back.sinks = o.sinks->read(ctx.stream).view();
    if (o.t5_bias != nullptr) back.t5_bias = o.t5_bias->read(ctx.stream).view();
    // The gradient's rows may be a slice of a wider row, or not, independently of the value's; the
    // kernel has one batch stride for both, so a differing layout goes through a buffer of its own.
    const bool same = d.grad.row_stride() == qkv.value.row_stride();
    const Tensor value = same ? qkv.value : ctx.empty(ctx.dtype, qkv.shape());
    const Tensor grad = same ? d.grad : ctx.empty(ctx.dtype, qkv.shape());
    if (!same) {
      back.q_batch_stride = back.kv_batch_stride = o.T * value.row_stride();
      ctx.backend.copy({.src = qkv.value.view(), .dst = value.mut_view()}, ctx.stream);
    }
    ctx.backend.attention_backward(
        {.dout = dout.view(),
         .q = q_of(value).view(),
         .k = k_of(value).view(),
         .v = v_of(value).view(),
         .out = out.view(),
         .lse = lse.view(),
         .delta = {},
         .dq = q_of(grad).mut_view(),
         .dk = k_of(grad).mut_view(),
         .dv = v_of(grad).mut_view(),
         .dsinks = o.sinks == nullptr ? MutView{} : mut_view_or_none(o.sinks->main_grad),
         .dt5_bias = o.t5_bias == nullptr ? MutView{} : mut_view_or_none(o.t5_bias->main_grad),
         .mode = same ? d.mode : GradMode::kOverwrite,
         .sinks_mode = o.sinks == nullptr ? GradMode::kSkip : o.sinks->next_mode(),
         .t5_mode = o.t5_bias == nullptr ? GradMode::kSkip : o.t5_bias->next_mode(),
         .shape = back},
        ctx.stream);
    if (!same) ctx.backend.copy({.src = grad.view(), .dst = d.view(), .mode = d.mode}, ctx.stream);
  });
  return attended;
}

}  // namespace ashlar::ops
