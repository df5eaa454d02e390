#include "launch/commands/subcommands.h"

#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/autograd/ctx.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

struct AttentionSizes {
  const char* name;
  int64_t B, T, H, D;
};
constexpr std::array<AttentionSizes, 3> kAttentionSizes = {AttentionSizes{"gpt2", 4, 256, 12, 64},
                                                           AttentionSizes{"gpt2-1024", 1, 1024, 12, 64},
                                                           AttentionSizes{"char", 12, 64, 4, 32}};

class Problem {
 public:
  Problem(const Ctx& ctx, const AttentionSizes& s, double dropout) : ctx_(ctx), width_(s.H * s.D) {
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

void print_attention_row(std::ostream& out, const AttentionSizes& s, DType dtype, const char* pass, double seconds,
                         double flops, double peak) {
  out << absl::StrFormat("%-10s %-5s B=%-3d T=%-5d H=%-3d D=%-4d %-9s %9.3f ms %8.1f GFLOP/s %5.1f%%\n", s.name,
                         std::string(name_of(dtype)), s.B, s.T, s.H, s.D, pass, seconds * 1e3, flops / seconds * 1e-9,
                         100 * flops / seconds / peak);
}

}  // namespace

int run_bench_attention(Words words, Session& session) {
  Arguments args("bench attention", words);
  const auto threads = static_cast<int>(args.integer("--threads", 0, 1, 1024));
  const std::vector<DType> dtypes = take_dtypes(args, {DType::kFloat32, DType::kBFloat16});
  const std::string isa = args.option("--isa").value_or("");
  const double dropout = args.number("--dropout", 0, 0, 0.999);
  const double seconds = args.number("--seconds", 0.3, 1e-4, 60);  // time budget of a measurement
  args.options_only();
  std::ostream& out = session.out;
  const std::unique_ptr<Backend> backend = kernels::make_backend({.threads = threads, .max_isa = isa});
  const std::unique_ptr<Stream> stream = backend->make_stream();
  out << backend->description() << "\n";
  for (const DType dtype : dtypes) {
    const double peak = backend->measure_peak(accumulate_dtype(dtype), 0.1);
    out << "attention in " << name_of(dtype) << "; 100% = " << std::llround(peak * 1e-9) << " GFLOP/s ("
        << name_of(accumulate_dtype(dtype)) << " multiply-add peak measured now); causal flops, dropout " << dropout
        << "\n";
    for (const AttentionSizes& s : kAttentionSizes) {
      const Problem problem({.backend = *backend, .stream = *stream, .dtype = dtype, .scalars = {}}, s, dropout);
      const double pairs = static_cast<double>(s.B * s.H * s.T * (s.T + 1) / 2) * static_cast<double>(s.D);
      const double forward = quartile_seconds(seconds, [&] { problem.forward(); });
      const double backward = quartile_seconds(seconds, [&] { problem.backward(); });
      print_attention_row(out, s, dtype, "forward", forward, 4 * pairs, peak);
      print_attention_row(out, s, dtype, "backward", backward, 10 * pairs, peak);
      print_attention_row(out, s, dtype, "both", forward + backward, 14 * pairs, peak);
    }
  }
  return 0;
}

}  // namespace ashlar::launch
