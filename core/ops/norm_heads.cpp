#include "core/ops/norm_heads.h"

#include <vector>

namespace ashlar::ops {

namespace {

void check_weights(const Ctx& ctx, const HeadPart& part, int64_t head_dim) {
  if (!part.norm) return;
  const HeadNorm& norm = *part.norm;
  for (const Weight* w : {norm.weights.gamma, norm.weights.beta}) {
    if (w == nullptr) continue;
    const int64_t expected = norm.shared_weights ? head_dim : part.heads * head_dim;
    ASHLAR_CHECK(w->shape().size() == expected, "norm_heads: weights ", w->shape().str(), ", expected ", expected);
    ASHLAR_CHECK(ctx.tape == nullptr || w->grad_partial == norm.shared_weights,
                 "norm_heads: the gradient of a weight that ",
                 norm.shared_weights ? "all heads share is not" : "is sharded like the heads is",
                 " summed over the tensor group");
  }
  ASHLAR_CHECK(!norm.across || !norm.shared_weights || norm.weights.gamma == nullptr,
               "norm_heads: a norm across heads has a gain for each column");
}

/// One HeadPart of a norm_heads call: its columns, and the statistics that backward needs.
struct Slice {
  HeadPart part;
  int64_t from = 0, to = 0, width = 0;  ///< first column in x, first column in y, and number of columns
  Tensor mean, rstd;

  int64_t norms() const { return part.norm->across ? 1 : part.heads; }  ///< number of norms per row
  bool centred() const { return part.norm->variant.type == NormType::kLayerNorm; }
};

/// Computes the norms that span the heads of all tensor ranks. `slices` are all slices of a call that have such a norm;
/// one all-reduce sums the row sums of all these slices.
class AcrossRanks {
 public:
  AcrossRanks(const Ctx& ctx, std::vector<Slice*> slices, int64_t rows, Reduction& ranks)
      : ctx_(ctx), slices_(std::move(slices)), rows_(rows), ranks_(ranks) {}

  /// Computes mean and rstd of every slice.
  void statistics(const Tensor& x) {
    bool any_centred = false;
    for (const Slice* s : slices_) any_centred = any_centred || s->centred();
    if (any_centred) sum(x, true);
    sum(x, false);
  }

  /// Returns the sums of h and of h * xhat over columns and ranks (NormBackwardRowSums), as [2 * number of slices, N].
  Tensor backward_sums(const Tensor& dy, const Tensor& x) {
    const Tensor sums = ctx_.empty(ctx_.accumulate(), {2 * count(), rows_});
    for (int64_t i = 0; i < count(); ++i) {
      const Slice& s = *slices_[i];
      ctx_.backend.norm_backward_row_sums({.dy = dy.column_range(s.to, s.width).view(),
                                           .x = x.column_range(s.from, s.width).view(),
                                           .gamma = value_or_none(s.part.norm->weights.gamma, ctx_.stream),
                                           .mean = view_or_none(s.mean),
                                           .rstd = s.rstd.view(),
                                           .sum_h = row(sums, 2 * i),
                                           .sum_hx = row(sums, 2 * i + 1),
                                           .unit_offset = s.part.norm->variant.unit_offset},
                                          ctx_.stream);
    }
    ranks_.sum(sums.mut_view(), ctx_.stream);
    return sums;
  }
  int64_t total(const Slice& s) const { return s.width * ranks_.ranks(); }
  MutView row(const Tensor& sums, int64_t i) const { return sums.flat_range(i * rows_, rows_).mut_view(); }

 private:
  int64_t count() const { return static_cast<int64_t>(slices_.size()); }

  /// Sums over columns and ranks. If `means` is true, sums x and computes mean; otherwise sums (x - mean)^2 and
  /// computes rstd.
  void sum(const Tensor& x, bool means) {
    const Tensor sums = ctx_.empty(ctx_.accumulate(), {count(), rows_});
    for (int64_t i = 0; i < count(); ++i) {
      const Slice& s = *slices_[i];
      ctx_.backend.norm_row_stats({.x = x.column_range(s.from, s.width).view(),
                                   .center = view_or_none(s.mean),
                                   .sum = means ? row(sums, i) : MutView{},
                                   .sum_squares = means ? MutView{} : row(sums, i)},
                                  ctx_.stream);
    }
    ranks_.sum(sums.mut_view(), ctx_.stream);
    for (int64_t i = 0; i < count(); ++i) {
      Slice& s = *slices_[i];
      Tensor& to = means ? s.mean : s.rstd;
      to = sums.flat_range(i * rows_, rows_);
      NormStatistics finish{.c_total = total(s), .eps = s.part.norm->variant.eps};
      (means ? finish.sum : finish.sum_squares) = to.view();
      (means ? finish.mean : finish.rstd) = to.mut_view();
      ctx_.backend.norm_statistics(finish, ctx_.stream);
    }
  }

  const Ctx ctx_;
  std::vector<Slice*> slices_;
  int64_t rows_;
  Reduction& ranks_;
};

void forward(const Ctx& ctx, const Tensor& x, const Tensor& y, Slice& s, bool given_statistics) {
  const ConstView in = x.column_range(s.from, s.width).view();
  const MutView out = y.column_range(s.to, s.width).mut_view();
  if (!s.part.norm) return ctx.backend.copy({.src = in, .dst = out}, ctx.stream);
  const HeadNorm& norm = *s.part.norm;
  const ConstView gamma = value_or_none(norm.weights.gamma, ctx.stream),
                  beta = value_or_none(norm.weights.beta, ctx.stream);
  if (given_statistics) {
    return ctx.backend.norm_apply({.x = in,
                                   .gamma = gamma,
                                   .beta = beta,
                                   .mean = view_or_none(s.mean),
                                   .rstd = s.rstd.view(),
                                   .y = out,
                                   .unit_offset = norm.variant.unit_offset},
                                  ctx.stream);
  }
  const int64_t statistics = s.norms() * x.rows();
  s.rstd = ctx.empty(ctx.accumulate(), {statistics});
  if (s.centred()) s.mean = ctx.empty(ctx.accumulate(), {statistics});
  ctx.backend.norm_forward({.x = in,
                            .gamma = gamma,
                            .beta = beta,
                            .y = out,
                            .mean = mut_view_or_none(s.mean),
                            .rstd = s.rstd.mut_view(),
                            .variant = norm.variant,
                            .heads = s.norms()},
                           ctx.stream);
}

/// Inputs and output of the backward of a slice.
struct Backward {
  ConstView dy, x;
  MutView dx;
  GradMode mode = GradMode::kOverwrite;
};

void backward(const Ctx& ctx, const Slice& s, const Backward& b, AcrossRanks* across, const Tensor& sums, int64_t i) {
  if (!s.part.norm) {
    if (b.mode != GradMode::kSkip) ctx.backend.copy({.src = b.dy, .dst = b.dx, .mode = b.mode}, ctx.stream);
    return;
  }
  const auto [gamma, beta] = s.part.norm->weights;
  const NormVariant& variant = s.part.norm->variant;
  const GradMode mode = next_mode(gamma);
  const GradMode beta_mode = next_mode(beta);
  ASHLAR_CHECK(beta_mode == GradMode::kSkip || beta_mode == mode,
               "expected gain and bias of a norm to be used together");
  if (across == nullptr) {
    ctx.backend.norm_backward({.dy = b.dy,
                               .x = b.x,
                               .gamma = value_or_none(gamma, ctx.stream),
                               .mean = view_or_none(s.mean),
                               .rstd = s.rstd.view(),
                               .dx = b.dx,
                               .dgamma = grad_or_none(gamma),
                               .dbeta = grad_or_none(beta),
                               .dx_mode = b.mode,
                               .param_mode = mode,
                               .variant = variant,
                               .heads = s.norms()},
                              ctx.stream);
    return;
  }
  ctx.backend.norm_backward_apply({.dy = b.dy,
                                   .x = b.x,
                                   .gamma = value_or_none(gamma, ctx.stream),
                                   .mean = view_or_none(s.mean),
                                   .rstd = s.rstd.view(),
                                   .sum_h = s.centred() ? across->row(sums, 2 * i) : ConstView{},
                                   .sum_hx = across->row(sums, 2 * i + 1),
                                   .c_total = across->total(s),
                                   .dx = b.dx,
                                   .dgamma = grad_or_none(gamma),
                                   .dbeta = grad_or_none(beta),
                                   .dx_mode = b.mode,
                                   .param_mode = mode,
                                   .unit_offset = variant.unit_offset},
                                  ctx.stream);
}

bool crosses(const Slice& s, const Reduction* ranks) {
  return s.part.norm && s.part.norm->across && ranks != nullptr && ranks->ranks() > 1;
}

std::vector<Slice*> crossing(std::vector<Slice>& slices, const Reduction* ranks) {
  std::vector<Slice*> found;
  for (Slice& s : slices)
    if (crosses(s, ranks)) found.push_back(&s);
  return found;
}

/// True if slice i reads the same columns of x as an earlier slice, whose backward has already written their gradient.
bool written_before(const std::vector<Slice>& slices, size_t i) {
  for (size_t j = 0; j < i; ++j)
    if (slices[j].from < slices[i].from + slices[i].width && slices[i].from < slices[j].from + slices[j].width)
      return true;
  return false;
}

}  // namespace

Var norm_heads(const Ctx& ctx, const Var& x, int64_t head_dim, std::span<const HeadPart> parts, Reduction* ranks) {
  const ValueInfo info = place(ctx, "norm_heads", x, {{Placement::kColumnsSplit, Placement::kColumnsSplit}});
  const int64_t N = x.rows();
  std::vector<Slice> slices;
  int64_t width = 0;
  for (const HeadPart& part : parts) {
    const int64_t own_dim = part.head_dim > 0 ? part.head_dim : head_dim;
    check_weights(ctx, part, own_dim);
    slices.push_back({.part = part, .from = part.first * head_dim, .to = width, .width = part.heads * own_dim});
    width += part.heads * own_dim;
  }
  const Tensor y = ctx.empty(ctx.dtype, {N, width});
  if (const std::vector<Slice*> cross = crossing(slices, ranks); !cross.empty())
    AcrossRanks(ctx, cross, N, *ranks).statistics(x.value);
  for (Slice& s : slices) forward(ctx, x.value, y, s, crosses(s, ranks));
  const Var out = result(ctx, y, info);
  if (ctx.tape == nullptr) return out;

  ctx.tape->record(out, [ctx, x, slices, ranks](Tape& tape, const Tensor& dy) mutable {
    const GradTarget dx = tape.target(x);
    const std::vector<Slice*> cross = crossing(slices, ranks);
    std::optional<AcrossRanks> across;
    Tensor sums;
    if (!cross.empty()) {
      across.emplace(ctx, cross, dy.rows(), *ranks);
      sums = across->backward_sums(dy, x.value);
    }
    int64_t number = 0;  // index of the slice among the slices normalized across ranks
    for (size_t i = 0; i < slices.size(); ++i) {
      const Slice& s = slices[i];
      const bool again = dx.mode == GradMode::kOverwrite && written_before(slices, i);
      const Backward b{.dy = dy.column_range(s.to, s.width).view(),
                       .x = x.value.column_range(s.from, s.width).view(),
                       .dx = dx.wanted() ? dx.grad.column_range(s.from, s.width).mut_view() : MutView{},
                       .mode = again ? GradMode::kAccumulate : dx.mode};
      const bool one = crosses(s, ranks);
      backward(ctx, s, b, one ? &*across : nullptr, sums, number);
      number += one;
    }
  });
  return out;
}

}  // namespace ashlar::ops
