#include "launch/commands/bench_gemm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/cpu_info.h"
#include "kernels/cpu/gemm.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

using cpu::Gemm;
using cpu::GemmArgs;

struct Shape {
  int64_t rows, k, m;  // y [rows, m] = x [rows, k] w [m, k]^T
};
constexpr std::array<Shape, 5> kGpt2 = {Shape{1024, 768, 2304}, Shape{1024, 768, 768}, Shape{1024, 768, 3072},
                                        Shape{1024, 3072, 768}, Shape{1024, 768, 50304}};
constexpr std::array<Shape, 5> kChar = {Shape{768, 128, 384}, Shape{768, 128, 128}, Shape{768, 128, 512},
                                        Shape{768, 512, 128}, Shape{768, 128, 65}};
constexpr std::array<std::string_view, 3> kKinds = {"forward", "dgrad", "wgrad"};

struct Options {
  bool json = false;
  int threads = 0;
  bool gpt2 = true, chars = true;
  std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16};
  double seconds = 0.15;  // a row
};

template <typename Number>
Number parse_number(const std::string& option, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) {
    throw input_error("bench gemm", option, " expects a positive number, got \"", text, "\"");
  }
  return value;
}

Options parse(std::span<const std::string> args) {
  Options options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& option = args[i];
    if (option == "--json") {
      options.json = true;
      continue;
    }
    constexpr std::array<std::string_view, 4> kWithValue = {"--threads", "--shapes", "--dtype", "--seconds"};
    if (std::find(kWithValue.begin(), kWithValue.end(), option) == kWithValue.end()) {
      throw input_error("bench gemm", "unknown option \"", option,
                        "\"; use --json, --threads, --shapes, --dtype or --seconds");
    }
    if (i + 1 == args.size()) throw input_error("bench gemm", option, " needs a value");
    const std::string& value = args[++i];
    if (option == "--threads") {
      options.threads = parse_number<int>(option, value);
    } else if (option == "--seconds") {
      options.seconds = parse_number<double>(option, value);
    } else if (option == "--shapes") {
      if (value != "gpt2" && value != "char" && value != "all") {
        throw input_error("bench gemm", "--shapes expects gpt2, char or all, got \"", value, "\"");
      }
      options.gpt2 = value != "char";
      options.chars = value != "gpt2";
    } else if (option == "--dtype") {
      if (value == "all") {
        options.dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
      } else {
        options.dtypes.clear();
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
          if (value == name_of(dtype)) options.dtypes.push_back(dtype);
        }
        if (options.dtypes.empty()) {
          throw input_error("bench gemm", "--dtype expects fp32, bf16, fp64 or all, got \"", value, "\"");
        }
      }
    }
  }
  return options;
}

/// A matrix of pseudo-random numbers in [-1, 1) in memory of an arena.
class Matrix {
 public:
  Matrix(Allocator& memory, DType dtype, int64_t rows, int64_t cols, uint64_t site)
      : block_(memory, rows * cols * size_of(dtype)), view_{block_.data(), dtype, rows, cols, cols} {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const uint64_t mix = (static_cast<uint64_t>(i) + site) * 0x9E3779B97F4A7C15ULL;
      const float value = 2.0F * Philox::uniform(static_cast<uint32_t>(mix >> 32)) - 1.0F;
      switch (dtype) {
        case DType::kFloat32: static_cast<float*>(view_.data)[i] = value; break;
        case DType::kBFloat16: static_cast<BF16*>(view_.data)[i] = BF16(value); break;
        default: static_cast<double*>(view_.data)[i] = value; break;
      }
    }
  }
  MutView view() const { return view_; }

 private:
  cpu::ScopedBlock block_;
  MutView view_;
};

struct Row {
  std::string_view model;
  DType dtype;
  Shape shape;
  std::string_view kind;
  double seconds = 0, flops = 0, peak = 0;

  double share() const { return flops / seconds / peak; }
};

void measure(const Options& options, Gemm& gemm, Allocator& memory, std::string_view model,
             std::span<const Shape> shapes, DType dtype, std::vector<Row>& rows) {
  const cpu::Isa isa = cpu::detect_cpu().isa;
  for (const Shape& s : shapes) {
    const Matrix x(memory, dtype, s.rows, s.k, 1);
    const Matrix w(memory, dtype, s.m, s.k, 2);
    const Matrix y(memory, dtype, s.rows, s.m, 3);
    const Matrix dx(memory, dtype, s.rows, s.k, 4);
    const Matrix dw(memory, accumulate_dtype(dtype), s.m, s.k, 5);
    // As the model calls them: weight gradients accumulate into the main gradient.
    const std::array<GemmArgs, 3> calls = {
        GemmArgs{.a = x.view(), .b = w.view(), .bias = {}, .c = y.view(), .transpose_b = true},
        GemmArgs{.a = y.view(), .b = w.view(), .bias = {}, .c = dx.view()},
        GemmArgs{.a = y.view(), .b = x.view(), .bias = {}, .c = dw.view(), .transpose_a = true, .accumulate = true}};
    for (size_t i = 0; i < calls.size(); ++i) {
      Row row{.model = model, .dtype = dtype, .shape = s, .kind = kKinds[i]};
      row.flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.k) * static_cast<double>(s.m);
      row.seconds = quartile_seconds(options.seconds, [&] { gemm.run(calls[i]); });
      // Right after the product, at the clock that it leaves behind: rested cores reach a peak that no product can
      // hold.
      row.peak = cpu::measure_peak(dtype, options.threads, isa, 0.02);
      rows.push_back(row);
    }
  }
}

double median_peak(std::span<const Row> rows) {
  std::vector<double> peaks;
  for (const Row& row : rows) peaks.push_back(row.peak);
  return quantile(std::move(peaks), 0.5);
}

/// Time-weighted share of peak over the rows of one model, dtype and kind; 0 when none was served.
double total_share(const std::vector<Row>& rows, std::string_view model, DType dtype, std::string_view kind) {
  double flops = 0;
  double at_peak = 0;
  for (const Row& row : rows) {
    if (row.model != model || row.dtype != dtype || row.kind != kind) continue;
    flops += row.flops / row.peak;
    at_peak += row.seconds;
  }
  return at_peak > 0 ? flops / at_peak : 0;
}

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), pattern, values...);
  return line.data();
}

void print_table(const std::vector<Row>& rows, std::ostream& out) {
  out << "model dtype      N      K      M  product       ms   GFLOP/s  % of peak\n";
  for (const Row& row : rows) {
    out << format("%-5s %-5s %6lld %6lld %6lld  %-7s ", row.model.data(), name_of(row.dtype).data(),
                  static_cast<long long>(row.shape.rows), static_cast<long long>(row.shape.k),
                  static_cast<long long>(row.shape.m), row.kind.data());
    out << format("%8.3f %9.1f %10.1f\n", row.seconds * 1e3, row.flops / row.seconds * 1e-9, 100 * row.share());
  }
}

}  // namespace

int run_bench_gemm(std::span<const std::string> args, std::ostream& out) {
  Options options = parse(args);
  const cpu::CpuInfo info = cpu::detect_cpu();
  if (options.threads == 0) options.threads = info.cores;
  cpu::limit_libraries(info.isa);
  cpu::ArenaAllocator memory(MemoryKind::kActivations);
  cpu::ArenaAllocator workspace(MemoryKind::kWorkspace);
  Gemm gemm(info.isa, options.threads, workspace);
  std::vector<Row> rows;
  nlohmann::json json = {{"cpu", info.model}, {"isa", name_of(info.isa)}, {"threads", options.threads}};
  if (!options.json) {
    out << info.model << ", " << name_of(info.isa) << ", " << options.threads << " threads; " << gemm.description()
        << '\n';
  }
  for (const DType dtype : options.dtypes) {
    const size_t first = rows.size();
    if (options.gpt2) measure(options, gemm, memory, "gpt2", kGpt2, dtype, rows);
    if (options.chars) measure(options, gemm, memory, "char", kChar, dtype, rows);
    const double peak = median_peak(std::span(rows).subspan(first));
    const std::string dtype_name(name_of(dtype));
    json["peak_gflops"][dtype_name] = peak * 1e-9;
    if (!options.json) out << format("peak %-5s %9.1f GFLOP/s\n", dtype_name.c_str(), peak * 1e-9);
  }
  if (!options.json) print_table(rows, out);
  for (const std::string_view model : {"gpt2", "char"}) {
    for (const DType dtype : options.dtypes) {
      for (const std::string_view kind : kKinds) {
        const double share = total_share(rows, model, dtype, kind);
        if (share == 0) continue;
        json["share_of_peak"][std::string(model)][std::string(name_of(dtype))][std::string(kind)] = share;
        if (!options.json) {
          out << format("all of %-5s %-5s %-7s %6.1f %% of peak\n", model.data(), name_of(dtype).data(), kind.data(),
                        100 * share);
        }
      }
    }
  }
  if (!options.json) return 0;
  for (const Row& row : rows) {
    nlohmann::json entry = {{"model", row.model},  {"dtype", name_of(row.dtype)},
                            {"n", row.shape.rows}, {"k", row.shape.k},
                            {"m", row.shape.m},    {"product", row.kind}};
    entry["ms"] = row.seconds * 1e3;
    entry["gflops"] = row.flops / row.seconds * 1e-9;
    entry["share_of_peak"] = row.share();
    json["rows"].push_back(std::move(entry));
  }
  out << json.dump(2) << '\n';
  return 0;
}

}  // namespace ashlar::launch
