#include "launch/commands/subcommands.h"

#include <array>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/autograd/ctx.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/attention_problem.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

constexpr std::array<AttentionSizes, 3> kAttentionSizes = {AttentionSizes{"gpt2", 4, 256, 12, 64},
                                                           AttentionSizes{"gpt2-1024", 1, 1024, 12, 64},
                                                           AttentionSizes{"char", 12, 64, 4, 32}};

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
      const AttentionProblem problem({.backend = *backend, .stream = *stream, .dtype = dtype, .scalars = {}}, s,
                                     dropout);
      const double pairs = s.products();
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
