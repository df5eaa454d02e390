#include "launch/commands/bench_attention.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_info.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

struct Shape {
  const char* name;
  int64_t B, T, H, D;
};
constexpr std::array<Shape, 3> kShapes = {Shape{"gpt2", 4, 256, 12, 64}, Shape{"gpt2-1024", 1, 1024, 12, 64},
                                          Shape{"char", 12, 64, 4, 32}};

struct Options {
  int threads = 0;
  std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16};
  std::string isa;
  double dropout = 0;
  double seconds = 0.3;  // a figure
};

template <typename Number>
Number parse_number(const std::string& option, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) {
    throw input_error("bench attention", option, " expects a positive number, got \"", text, "\"");
  }
  return value;
}

Options parse(std::span<const std::string> args) {
  Options options;
  for (size_t i = 0; i < args.size(); i += 2) {
    const std::string& option = args[i];
    if (option != "--threads" && option != "--dtype" && option != "--isa" && option != "--dropout" &&
        option != "--seconds") {
      throw input_error("bench attention", "unknown option \"", option,
                        "\"; use --threads, --dtype, --isa, --dropout or --seconds");
    }
    if (i + 1 == args.size()) throw input_error("bench attention", option, " needs a value");
    const std::string& value = args[i + 1];
    if (option == "--threads") {
      options.threads = parse_number<int>(option, value);
    } else if (option == "--seconds") {
      options.seconds = parse_number<double>(option, value);
    } else if (option == "--dropout") {
      options.dropout = parse_number<double>(option, value);
      if (options.dropout >= 1) throw input_error("bench attention", "--dropout expects less than 1, got ", value);
    } else if (option == "--isa") {
      options.isa = value;
    } else {
      options.dtypes.clear();
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
        if (value == name_of(dtype) || value == "all") options.dtypes.push_back(dtype);
      }
      if (options.dtypes.empty()) {
        throw input_error("bench attention", "--dtype expects fp32, bf16, fp64 or all, got \"", value, "\"");
      }
    }
  }
  return options;
}

/// The fused qkv rows of one layer, their gradients, and what attention makes of them.
class Problem {
 public:
  Problem(Allocator& memory, const Shape& s, DType dtype, double dropout, int threads)
      : threads_(threads),
        width_(s.H * s.D),
        rows_(s.B * s.T),
        dtype_(dtype),
        qkv_(memory, rows_ * 3 * width_ * size_of(dtype)),
        dqkv_(memory, rows_ * 3 * width_ * size_of(dtype)),
        out_(memory, rows_ * width_ * size_of(dtype)),
        dout_(memory, rows_ * width_ * size_of(dtype)),
        lse_(memory, rows_ * s.H * size_of(accumulate_dtype(dtype))) {
    fill(qkv_.data(), rows_ * 3 * width_);
    fill(dout_.data(), rows_ * width_);
    AttentionShape shape{.B = s.B,
                         .T_q = s.T,
                         .T_kv = s.T,
                         .H = s.H,
                         .G = s.H,
                         .D = s.D,
                         .q_batch_stride = s.T * 3 * width_,
                         .kv_batch_stride = s.T * 3 * width_,
                         .scale = 1 / std::sqrt(static_cast<double>(s.D))};
    shape.dropout = {.p = dropout,
                     .seed = 1,
                     .site = 1,
                     .scalars = {&scalars_, DType::kUInt8, 1, sizeof(StepScalars), sizeof(StepScalars)},
                     .first_sample = 0,
                     .sequence_length = s.T,
                     .heads = s.H};
    const MutView lse{lse_.data(), accumulate_dtype(dtype), 1, rows_ * s.H, rows_ * s.H};
    forward_ = {
        .q = part(qkv_, 0), .k = part(qkv_, 1), .v = part(qkv_, 2), .out = plain(out_), .lse = lse, .shape = shape};
    backward_ = {.dout = plain(dout_),
                 .q = part(qkv_, 0),
                 .k = part(qkv_, 1),
                 .v = part(qkv_, 2),
                 .out = plain(out_),
                 .lse = lse,
                 .dq = part(dqkv_, 0),
                 .dk = part(dqkv_, 1),
                 .dv = part(dqkv_, 2),
                 .shape = shape};
  }

  int64_t workspace_bytes() const {
    return std::max(cpu::attention_forward_workspace_bytes(forward_, threads_),
                    cpu::attention_backward_workspace_bytes(backward_, threads_));
  }
  void forward(std::byte* workspace) const { cpu::attention_forward(forward_, threads_, workspace); }
  void backward(std::byte* workspace) const { cpu::attention_backward(backward_, threads_, workspace); }

 private:
  MutView part(const cpu::ScopedBlock& rows, int64_t index) const {
    return {rows.as<char>() + index * width_ * size_of(dtype_), dtype_, rows_, width_, 3 * width_};
  }
  MutView plain(const cpu::ScopedBlock& rows) const { return {rows.data(), dtype_, rows_, width_, width_}; }
  void fill(void* data, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const double value = Philox::normal_at(1, 0, static_cast<uint64_t>(i));
      switch (dtype_) {
        case DType::kFloat32: static_cast<float*>(data)[i] = static_cast<float>(value); break;
        case DType::kBFloat16: static_cast<BF16*>(data)[i] = BF16(static_cast<float>(value)); break;
        default: static_cast<double*>(data)[i] = value; break;
      }
    }
  }

  int threads_;
  int64_t width_, rows_;
  DType dtype_;
  StepScalars scalars_;
  cpu::ScopedBlock qkv_, dqkv_, out_, dout_, lse_;
  AttentionForward forward_;
  AttentionBackward backward_;
};

void print_row(std::ostream& out, const Shape& s, DType dtype, const char* pass, double seconds, double flops,
               double peak) {
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(),
                "%-10s %-5s B=%-3ld T=%-5ld H=%-3ld D=%-4ld %-9s %9.3f ms %8.1f GFLOP/s %5.1f%%\n", s.name,
                name_of(dtype).data(), s.B, s.T, s.H, s.D, pass, seconds * 1e3, flops / seconds * 1e-9,
                100 * flops / seconds / peak);
  out << line.data();
}

}  // namespace

int run_bench_attention(std::span<const std::string> args, std::ostream& out) {
  const Options options = parse(args);
  const cpu::CpuInfo info = cpu::detect_cpu(options.isa);
  cpu::limit_libraries(info.isa);
  const int threads = options.threads > 0 ? options.threads : info.cores;
  cpu::ArenaAllocator memory(MemoryKind::kWorkspace);

  for (const DType dtype : options.dtypes) {
    const double peak = cpu::measure_peak(accumulate_dtype(dtype), threads, info.isa);
    out << "attention on " << threads << (threads == 1 ? " thread, " : " threads, ") << cpu::name_of(info.isa) << ", "
        << name_of(dtype) << "; 100% = " << std::llround(peak * 1e-9) << " GFLOP/s ("
        << name_of(accumulate_dtype(dtype)) << " multiply-add peak measured now); causal flops, dropout "
        << options.dropout << "\n";
    for (const Shape& s : kShapes) {
      const Problem problem(memory, s, dtype, options.dropout, threads);
      const cpu::ScopedBlock workspace(memory, problem.workspace_bytes());
      std::byte* scratch = workspace.as<std::byte>();
      const double pairs = static_cast<double>(s.B * s.H * s.T * (s.T + 1) / 2) * static_cast<double>(s.D);
      const double forward = quartile_seconds(options.seconds, [&] { problem.forward(scratch); });
      const double backward = quartile_seconds(options.seconds, [&] { problem.backward(scratch); });
      print_row(out, s, dtype, "forward", forward, 4 * pairs, peak);
      print_row(out, s, dtype, "backward", backward, 10 * pairs, peak);
      print_row(out, s, dtype, "both", forward + backward, 14 * pairs, peak);
    }
  }
  return 0;
}

}  // namespace ashlar::launch
