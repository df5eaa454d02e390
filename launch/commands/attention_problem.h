#pragma once

#include <cmath>
#include <cstdint>

#include "core/autograd/ctx.h"

namespace ashlar::launch {

struct AttentionSizes {
  const char* name;
  int64_t B, T, H, D;
  /// Multiply-adds of one product for the visible pairs of queries and keys; forward has two products, backward five.
  double products() const { return static_cast<double>(B * H * T * (T + 1) / 2) * static_cast<double>(D); }
};
/// Attention of random queries, keys and values, forward and backward, for benchmarks.
class AttentionProblem {
 public:
  AttentionProblem(const Ctx& ctx, const AttentionSizes& s, double dropout) : ctx_(ctx), width_(s.H * s.D) {
    const int64_t rows = s.B * s.T;
    const auto random = [&](const Tensor& t, uint64_t rng_stream) {
      ctx.backend.random_fill(
          {.dst = t.mut_view(), .scale = 1, .seed = 1, .rng_stream = rng_stream, .global_cols = t.cols()}, ctx.stream);
      return t;
    };
    qkv_ = random(ctx.empty(ctx.dtype, {rows, 3 * width_}), 1);
    dqkv_ = ctx.empty(ctx.dtype, {rows, 3 * width_});
    out_ = ctx.empty(ctx.dtype, {rows, width_});
    dout_ = random(ctx.empty(ctx.dtype, {rows, width_}), 2);
    lse_ = ctx.empty(ctx.accumulate(), {rows * s.H});
    scalars_ = ctx.make_struct(StepScalars{});
    shape_ = {.B = s.B,
              .T_q = s.T,
              .T_kv = s.T,
              .H = s.H,
              .G = s.H,
              .D = s.D,
              .q_batch_stride = s.T * 3 * width_,
              .kv_batch_stride = s.T * 3 * width_};
    shape_.scores.scale = 1 / std::sqrt(static_cast<double>(s.D));
    shape_.dropout = {
        .p = dropout, .seed = 1, .rng_stream = 1, .scalars = scalars_.view(), .sequence_length = s.T, .heads = s.H};
  }

  void forward() const {
    ctx_.backend.attention_forward({.q = part(qkv_, 0).view(),
                                    .k = part(qkv_, 1).view(),
                                    .v = part(qkv_, 2).view(),
                                    .out = out_.mut_view(),
                                    .lse = lse_.mut_view(),
                                    .shape = shape_},
                                   ctx_.stream);
    ctx_.stream.synchronize();
  }
  void backward() const {
    ctx_.backend.attention_backward({.dout = dout_.view(),
                                     .q = part(qkv_, 0).view(),
                                     .k = part(qkv_, 1).view(),
                                     .v = part(qkv_, 2).view(),
                                     .out = out_.view(),
                                     .lse = lse_.view(),
                                     .delta = {},
                                     .dq = part(dqkv_, 0).mut_view(),
                                     .dk = part(dqkv_, 1).mut_view(),
                                     .dv = part(dqkv_, 2).mut_view(),
                                     .shape = shape_},
                                    ctx_.stream);
    ctx_.stream.synchronize();
  }

 private:
  Tensor part(const Tensor& rows, int64_t index) const { return rows.column_range(index * width_, width_); }

  Ctx ctx_;
  int64_t width_;
  Tensor qkv_, dqkv_, out_, dout_, lse_, scalars_;
  AttentionShape shape_;
};

}  // namespace ashlar::launch
