#include "core/ops/attention.h"

#include <vector>

namespace ashlar::ops {

namespace {

/// Copies the new rows of each sample behind its cached rows in `held`, where the samples are `capacity` rows apart.
void append(const Ctx& ctx, const AttentionOptions& o, const Tensor& rows, const Tensor& held,
            const AttentionCache& cache) {
  for (int64_t b = 0; b < o.B; ++b) {
    ctx.backend.copy({.src = rows.row_range(b * o.T, o.T).view(),
                      .dst = held.row_range(b * cache.capacity + cache.length, o.T).mut_view()},
                     ctx.stream);
  }
}

/// Returns a view of a cache tensor whose number of rows is set to `rows`, as kernels require: B * T_kv. The cache has
/// more rows, `capacity` per sample; kernels find the rows of each sample by the batch stride.
ConstView held_rows(const Tensor& held, int64_t rows) {
  ConstView view = held.view();
  view.rows = rows;
  return view;
}

/// q, k and v as column ranges of the inputs, which are [q | k | v], or q and [k | v], or q, k and v.
struct Columns {
  Tensor q, k, v;

  /// `rows` are the values, or the gradients, of the inputs.
  static Columns of(const std::vector<Tensor>& rows, const AttentionOptions& o) {
    const int64_t q_width = o.H * o.D, k_width = o.G * o.D, v_width = o.G * o.v_dim();
    const int64_t k_begin = rows.size() == 1 ? q_width : 0, v_begin = rows.size() == 3 ? 0 : k_begin + k_width;
    return {.q = rows.front().column_range(0, q_width),
            .k = rows[rows.size() == 1 ? 0 : 1].column_range(k_begin, k_width),
            .v = rows.back().column_range(v_begin, v_width)};
  }
  void set_strides(AttentionShape& shape) const {
    shape.q_batch_stride = shape.T_q * q.row_stride();
    shape.kv_batch_stride = shape.T_kv * k.row_stride();
    shape.v_batch_stride = shape.T_kv * v.row_stride();
  }
};

void check_inputs(const std::vector<Var>& inputs, const AttentionOptions& o) {
  const int64_t q = o.H * o.D, k = o.G * o.D, v = o.G * o.v_dim();
  const std::vector<std::vector<int64_t>> widths = {{q + k + v}, {q, k + v}, {q, k, v}};
  ASHLAR_CHECK(!inputs.empty() && inputs.size() <= 3, inputs.size(), " inputs, expected 1 to 3");
  ASHLAR_CHECK(inputs.size() > 1 || o.keys() == o.T, o.keys(), " keys and ", o.T, " queries in the same rows");
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASHLAR_SHAPE(inputs[i], {o.B * (i == 0 ? o.T : o.keys()), widths[inputs.size() - 1][i]});
    place_alike("attention", inputs[0], inputs[i]);
  }
}

/// Outputs and shape of a forward call, which backward needs.
struct Forward {
  Tensor out, lse;
  AttentionShape shape;
};

/// Sets the views of the weights (sinks, T5 bias). Forward and backward both call it, since the address of a weight
/// changes if parameters are gathered again in between.
void read_weights(const Ctx& ctx, const AttentionOptions& o, ScoreChange& scores) {
  if (o.sinks != nullptr) scores.sinks = o.sinks->read(ctx.stream).view();
  if (o.t5_bias != nullptr) scores.t5_bias = o.t5_bias->read(ctx.stream).view();
}

Forward forward(const Ctx& ctx, const Columns& in, const AttentionOptions& o, const AttentionCache* cache) {
  DropoutArgs dropout = ctx.dropout_args(o.dropout, o.dropout_rng_stream);
  dropout.head0 = o.head0;
  dropout.heads = o.global_heads > 0 ? o.global_heads : o.H;
  AttentionShape shape{.mask = o.mask,
                       .scores = o.scores,
                       .B = o.B,
                       .T_q = o.T,
                       .T_kv = o.keys(),
                       .H = o.H,
                       .G = o.G,
                       .D = o.D,
                       .D_v = o.v_dim(),
                       .dropout = dropout};
  read_weights(ctx, o, shape.scores);
  in.set_strides(shape);
  ConstView k = in.k.view(), v = in.v.view();
  if (cache != nullptr) {
    ASHLAR_CHECK(ctx.tape == nullptr, "attention with a cache records nothing");
    ASHLAR_CHECK(o.keys() == o.T, "a cache holds keys of the queries' own tokens");
    ASHLAR_CHECK(cache->length + o.T <= cache->capacity, "cache of ", cache->capacity, " tokens is full");
    append(ctx, o, in.k, cache->k, *cache);
    append(ctx, o, in.v, cache->v, *cache);
    shape.mask.q_start = cache->length;
    shape.T_kv = cache->length + o.T;
    shape.kv_batch_stride = cache->capacity * o.G * o.D;
    shape.v_batch_stride = cache->capacity * o.G * o.v_dim();
    k = held_rows(cache->k, o.B * shape.T_kv);
    v = held_rows(cache->v, o.B * shape.T_kv);
  }
  Forward saved{.out = ctx.empty(ctx.dtype, {o.B * o.T, o.H * o.v_dim()}),
                .lse = ctx.empty(ctx.accumulate(), {o.B * o.H * o.T}),
                .shape = shape};
  ctx.backend.attention_forward(
      {.q = in.q.view(), .k = k, .v = v, .out = saved.out.mut_view(), .lse = saved.lse.mut_view(), .shape = shape},
      ctx.stream);
  return saved;
}

void backward(const Ctx& ctx, const Forward& saved, const Tensor& dout, const Columns& in, const Columns& grad,
              GradMode mode, const AttentionOptions& o) {
  AttentionShape shape = saved.shape;
  in.set_strides(shape);
  read_weights(ctx, o, shape.scores);
  ctx.backend.attention_backward({.dout = dout.view(),
                                  .q = in.q.view(),
                                  .k = in.k.view(),
                                  .v = in.v.view(),
                                  .out = saved.out.view(),
                                  .lse = saved.lse.view(),
                                  .delta = {},
                                  .dq = grad.q.mut_view(),
                                  .dk = grad.k.mut_view(),
                                  .dv = grad.v.mut_view(),
                                  .dsinks = grad_or_none(o.sinks),
                                  .dt5_bias = grad_or_none(o.t5_bias),
                                  .mode = mode,
                                  .sinks_mode = next_mode(o.sinks),
                                  .t5_mode = next_mode(o.t5_bias),
                                  .shape = shape},
                                 ctx.stream);
}

/// Values and gradients of the inputs as the backward kernel needs them. The kernel uses one batch stride for a value
/// and its gradient, and one GradMode for all inputs. If a value and its gradient differ in layout (e.g. one is a slice
/// of wider rows), the modes differ, or an input needs no gradient, the values are copied to contiguous buffers, and
/// the gradients are computed in such buffers.
class Gradients {
 public:
  Gradients(const Ctx& ctx, Tape& tape, const std::vector<Var>& inputs) : ctx_(ctx) {
    for (const Var& input : inputs) targets_.push_back(tape.target(input));
    for (size_t i = 0; i < inputs.size(); ++i) {
      wanted_ = wanted_ || targets_[i].wanted();
      direct_ = direct_ && targets_[i].wanted() && targets_[i].mode == targets_[0].mode &&
                targets_[i].grad.row_stride() == inputs[i].value.row_stride();
    }
    if (!wanted_) return;
    for (size_t i = 0; i < inputs.size(); ++i) {
      values_.push_back(direct_ ? inputs[i].value : ctx.empty(ctx.dtype, inputs[i].shape()));
      grads_.push_back(direct_ ? targets_[i].grad : ctx.empty(ctx.dtype, inputs[i].shape()));
      if (!direct_) ctx.backend.copy({.src = inputs[i].value.view(), .dst = values_[i].mut_view()}, ctx.stream);
    }
  }
  bool wanted() const { return wanted_; }
  GradMode mode() const { return direct_ ? targets_[0].mode : GradMode::kOverwrite; }
  const std::vector<Tensor>& values() const { return values_; }
  const std::vector<Tensor>& grads() const { return grads_; }
  /// Copies the gradients to their targets, unless the kernel has written them there directly.
  void finish() const {
    for (size_t i = 0; i < targets_.size() && !direct_; ++i) {
      if (!targets_[i].wanted()) continue;
      ctx_.backend.copy({.src = grads_[i].view(), .dst = targets_[i].view(), .mode = targets_[i].mode}, ctx_.stream);
    }
  }

 private:
  const Ctx& ctx_;
  std::vector<GradTarget> targets_;
  std::vector<Tensor> values_, grads_;
  bool wanted_ = false, direct_ = true;
};

}  // namespace

Var attention(const Ctx& ctx, const std::vector<Var>& inputs, const AttentionOptions& o, const AttentionCache* cache) {
  const ValueInfo info = place(ctx, "attention", inputs.at(0), {{Placement::kColumnsSplit, Placement::kColumnsSplit}},
                               {o.sinks, o.t5_bias});
  check_inputs(inputs, o);
  std::vector<Tensor> rows;
  for (const Var& input : inputs) rows.push_back(input.value);
  const Forward result_of = forward(ctx, Columns::of(rows, o), o, cache);
  const Var attended = result(ctx, result_of.out, info);
  if (ctx.tape == nullptr) return attended;

  ctx.tape->record(attended, [ctx, inputs, result_of, o](Tape& tape, const Tensor& dout) {
    const Gradients d(ctx, tape, inputs);
    if (!d.wanted()) return;
    backward(ctx, result_of, dout, Columns::of(d.values(), o), Columns::of(d.grads(), o), d.mode(), o);
    d.finish();
  });
  return attended;
}

}  // namespace ashlar::ops
