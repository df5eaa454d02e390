#include "launch/commands/bench_gemm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "core/tuning/tuner.h"
#include "kernels/make_backend.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

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
  std::string device = "cpu";
  int threads = 0;
  bool gpt2 = true, chars = true;
  std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16};
  double seconds = 0.15;  // per row
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
    constexpr std::array<std::string_view, 5> kWithValue = {"--device", "--threads", "--shapes", "--dtype",
                                                            "--seconds"};
    if (std::find(kWithValue.begin(), kWithValue.end(), option) == kWithValue.end()) {
      throw input_error("bench gemm", "unknown option \"", option,
                        "\"; use --json, --device, --threads, --shapes, --dtype or --seconds");
    }
    if (i + 1 == args.size()) throw input_error("bench gemm", option, " needs a value");
    const std::string& value = args[++i];
    if (option == "--device") {
      options.device = value;
    } else if (option == "--threads") {
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

/// A matrix of random numbers in the backend's memory.
Tensor random_matrix(Backend& backend, Stream& stream, DType dtype, int64_t rows, int64_t cols, uint64_t rng_stream) {
  const Tensor t = Tensor::allocate(backend.allocator(MemoryKind::kActivations), dtype, {rows, cols});
  backend.random_fill({.dst = t.mut_view(), .scale = 0.5, .seed = 1, .rng_stream = rng_stream, .global_cols = cols},
                      stream);
  return t;
}

struct Row {
  std::string_view model;
  DType dtype;
  Shape shape;
  std::string_view kind;
  double seconds = 0, flops = 0, peak = 0;

  double share() const { return flops / seconds / peak; }
};

constexpr int kAtOnce = 20;

/// Chooses the fastest algorithms, as a run does before its first step, if the device has a choice.
void choose_algorithms(Backend& backend, Stream& stream, std::span<const std::function<void()>> calls) {
  auto* const tunable = dynamic_cast<Tunable*>(&backend);
  Tuner* const tuner = tunable != nullptr ? tunable->tuner() : nullptr;
  if (tuner == nullptr) return;
  for (const auto& call : calls) call();
  stream.synchronize();
  const TunedChoices met = tuner->met();
  tuner->use(united(met, tuner->measure(unanswered(met, met))));
}

void measure(const Options& options, Backend& backend, std::string_view model, std::span<const Shape> shapes,
             DType dtype, std::vector<Row>& rows) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  for (const Shape& s : shapes) {
    const auto matrix = [&](DType type, int64_t n, int64_t cols, uint64_t rng_stream) {
      return random_matrix(backend, *stream, type, n, cols, rng_stream);
    };
    const Tensor x = matrix(dtype, s.rows, s.k, 1), w = matrix(dtype, s.m, s.k, 2), y = matrix(dtype, s.rows, s.m, 3);
    const Tensor dx = matrix(dtype, s.rows, s.k, 4), dw = matrix(accumulate_dtype(dtype), s.m, s.k, 5);
    // The same calls as the model makes: weight gradients accumulate into the main gradient.
    const std::array<std::function<void()>, 3> calls = {
        [&] { backend.linear_forward({.x = x.view(), .w = w.view(), .bias = {}, .y = y.mut_view()}, *stream); },
        [&] { backend.linear_backward_input({.dy = y.view(), .w = w.view(), .dx = dx.mut_view()}, *stream); },
        [&] {
          backend.linear_backward_weight(
              {.dy = y.view(), .x = x.view(), .dw = dw.mut_view(), .dbias = {}, .mode = GradMode::kAccumulate},
              *stream);
        }};
    choose_algorithms(backend, *stream, calls);
    // Many calls in a row on an asynchronous stream, so that the host's wait is not measured.
    const int at_once = stream->synchronous() ? 1 : kAtOnce;
    for (size_t i = 0; i < calls.size(); ++i) {
      Row row{.model = model, .dtype = dtype, .shape = s, .kind = kKinds[i]};
      row.flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.k) * static_cast<double>(s.m);
      row.seconds = quartile_seconds(options.seconds,
                                     [&] {
                                       for (int n = 0; n < at_once; ++n) calls[i]();
                                       stream->synchronize();
                                     }) /
                    at_once;
      // Measured right after the product, at the same clock: cores that were idle reach a peak that no product can
      // sustain.
      row.peak = backend.measure_peak(dtype, 0.02);
      rows.push_back(row);
    }
  }
}

double median_peak(std::span<const Row> rows) {
  std::vector<double> peaks;
  for (const Row& row : rows) peaks.push_back(row.peak);
  return quantile(std::move(peaks), 0.5);
}

/// Time-weighted share of peak over the rows of one model, dtype and kind; 0 when there is none.
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
  const Options options = parse(args);
  const std::unique_ptr<Backend> backend =
      kernels::make_backend({.device = options.device, .threads = options.threads});
  std::vector<Row> rows;
  nlohmann::json json = {{"device", backend->description()}};
  if (!options.json) out << backend->description() << '\n';
  for (const DType dtype : options.dtypes) {
    const size_t first = rows.size();
    if (options.gpt2) measure(options, *backend, "gpt2", kGpt2, dtype, rows);
    if (options.chars) measure(options, *backend, "char", kChar, dtype, rows);
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
