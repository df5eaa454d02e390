#include "launch/commands/subcommands.h"

#include <array>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/tuning/joined_tuners.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/random_matrix.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

struct GemmShape {
  int64_t rows, k, m;  // y [rows, m] = x [rows, k] w [m, k]^T
  int64_t groups = 1;  // of rows, each with a w of its own
};
constexpr std::array<GemmShape, 5> kGpt2 = {GemmShape{1024, 768, 2304}, GemmShape{1024, 768, 768},
                                            GemmShape{1024, 768, 3072}, GemmShape{1024, 3072, 768},
                                            GemmShape{1024, 768, 50304}};
constexpr std::array<GemmShape, 5> kChar = {GemmShape{768, 128, 384}, GemmShape{768, 128, 128},
                                            GemmShape{768, 128, 512}, GemmShape{768, 512, 128},
                                            GemmShape{768, 128, 65}};
// Layers of 8 experts of which each of 2048 tokens has 2, and of 128 small ones with few rows; then the same products
// with one weight for all rows.
constexpr std::array<GemmShape, 4> kExperts = {GemmShape{4096, 1024, 2048, 8}, GemmShape{4096, 2048, 1024, 8},
                                               GemmShape{4096, 1024, 768, 128}, GemmShape{4096, 768, 1024, 128}};
constexpr std::array<GemmShape, 4> kDense = {GemmShape{4096, 1024, 2048}, GemmShape{4096, 2048, 1024},
                                             GemmShape{4096, 1024, 768}, GemmShape{4096, 768, 1024}};
constexpr std::array<std::string_view, 3> kKinds = {"forward", "dgrad", "wgrad"};

struct GemmModel {
  std::string_view name;
  std::span<const GemmShape> shapes;
};

struct GemmArguments {
  bool json = false;
  std::string device;
  int threads = 0;
  std::vector<GemmModel> models;
  std::vector<DType> dtypes;
  double seconds = 0;  // time budget of a row
};

GemmArguments parse_gemm(Words words) {
  Arguments args("bench gemm", words);
  const GemmModel gpt2{"gpt2", kGpt2}, chars{"char", kChar}, experts{"experts", kExperts}, dense{"dense", kDense};
  const std::pair<std::string_view, std::vector<GemmModel>> models[] = {
      {"gpt2", {gpt2}}, {"char", {chars}}, {"experts", {experts, dense}}, {"all", {gpt2, chars, experts, dense}}};
  GemmArguments options{.json = args.flag("--json"),
                        .device = args.option("--device").value_or("cpu"),
                        .threads = static_cast<int>(args.integer("--threads", 0, 1, 1024)),
                        .models = args.choice("--shapes", models[3].second, models),
                        .dtypes = take_dtypes(args, {DType::kFloat32, DType::kBFloat16}),
                        .seconds = args.number("--seconds", 0.15, 1e-4, 60)};
  args.options_only();
  return options;
}

/// Returns where groups begin and end, as int32. Groups have from half to one and a half of the mean number of rows.
Tensor group_offsets(Backend& backend, Stream& stream, const GemmShape& s) {
  std::vector<int32_t> offsets;
  for (int64_t g = 0; g <= s.groups; ++g)
    offsets.push_back(static_cast<int32_t>(s.rows * g * (s.groups + g) / (2 * s.groups * s.groups)));
  const Tensor t = Tensor::allocate(backend.allocator(MemoryKind::kActivations), DType::kInt32, {1, s.groups + 1});
  backend.write(offsets.data(), t.mut_view(), stream);
  return t;
}

struct GemmRow {
  std::string_view model;
  DType dtype;
  GemmShape shape;
  std::string_view kind;
  double seconds = 0, flops = 0, peak = 0;

  double share() const { return flops / seconds / peak; }
};

constexpr int kAtOnce = 20;

/// Chooses the fastest algorithms, as a run does before its first step, and returns the tuner's lines about them. No
/// effect if the device has nothing to choose.
std::vector<std::string> choose_algorithms(Backend& backend, Stream& stream,
                                           std::span<const std::function<void()>> calls) {
  auto* const tunable = dynamic_cast<Tunable*>(&backend);
  Tuner* const tuner = tunable != nullptr ? tunable->tuner() : nullptr;
  if (tuner == nullptr) return {};
  for (const auto& call : calls) call();
  stream.synchronize();
  const TunedChoices met = tuner->met();
  tuner->use(united(met, tuner->measure(unanswered(met, met))));
  auto* const reporting = dynamic_cast<PreparingTuner*>(tuner);
  return reporting != nullptr ? reporting->details() : std::vector<std::string>{};
}

void measure_gemms(const GemmArguments& options, Backend& backend, const GemmModel& model, DType dtype,
                   std::vector<GemmRow>& rows, std::vector<std::string>& algorithms) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  for (const GemmShape& s : model.shapes) {
    const auto matrix = [&](DType type, int64_t n, int64_t cols, uint64_t rng_stream) {
      return random_matrix(backend, *stream, type, n, cols, rng_stream);
    };
    const int64_t w_rows = s.groups * s.m;
    const Tensor x = matrix(dtype, s.rows, s.k, 1), w = matrix(dtype, w_rows, s.k, 2),
                 y = matrix(dtype, s.rows, s.m, 3);
    const Tensor dx = matrix(dtype, s.rows, s.k, 4), dw = matrix(accumulate_dtype(dtype), w_rows, s.k, 5);
    const Tensor offsets = group_offsets(backend, *stream, s);
    // The same calls as the model makes: weight gradients accumulate into the main gradient.
    const std::array<std::function<void()>, 3> dense = {
        [&] { backend.linear_forward({.x = x.view(), .w = w.view(), .bias = {}, .y = y.mut_view()}, *stream); },
        [&] { backend.linear_backward_input({.dy = y.view(), .w = w.view(), .dx = dx.mut_view()}, *stream); },
        [&] {
          backend.linear_backward_weight(
              {.dy = y.view(), .x = x.view(), .dw = dw.mut_view(), .dbias = {}, .mode = GradMode::kAccumulate},
              *stream);
        }};
    const std::array<std::function<void()>, 3> grouped = {
        [&] {
          backend.grouped_linear_forward(
              {.x = x.view(), .w = w.view(), .bias = {}, .offsets = offsets.view(), .y = y.mut_view()}, *stream);
        },
        [&] {
          backend.grouped_linear_backward_input(
              {.dy = y.view(), .w = w.view(), .offsets = offsets.view(), .dx = dx.mut_view()}, *stream);
        },
        [&] {
          backend.grouped_linear_backward_weight({.dy = y.view(),
                                                  .x = x.view(),
                                                  .offsets = offsets.view(),
                                                  .dw = dw.mut_view(),
                                                  .dbias = {},
                                                  .mode = GradMode::kAccumulate},
                                                 *stream);
        }};
    const std::array<std::function<void()>, 3>& calls = s.groups > 1 ? grouped : dense;
    for (std::string& line : choose_algorithms(backend, *stream, calls)) algorithms.push_back(std::move(line));
    // Many calls in a row on an asynchronous stream, so that the host's wait is not measured.
    const int at_once = stream->synchronous() ? 1 : kAtOnce;
    for (size_t i = 0; i < calls.size(); ++i) {
      GemmRow row{.model = model.name, .dtype = dtype, .shape = s, .kind = kKinds[i]};
      row.flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.k) * static_cast<double>(s.m);
      row.seconds = quartile_seconds(options.seconds,
                                     [&] {
                                       for (int n = 0; n < at_once; ++n) calls[i]();
                                       stream->synchronize();
                                     }) /
                    at_once;
      // The peak is measured right after the product, while the cores still have the clock frequency that they had
      // during the product. Cores that have rested reach a higher peak, which no product can sustain.
      row.peak = backend.measure_peak(dtype, 0.02);
      rows.push_back(row);
    }
  }
}

double median_peak(std::span<const GemmRow> rows) {
  std::vector<double> peaks;
  for (const GemmRow& row : rows) peaks.push_back(row.peak);
  return quantile(std::move(peaks), 0.5);
}

/// Returns the mean share of the peak, weighted by time, over the rows of one model, dtype and kind of product; 0 if
/// there are no such rows.
double total_share(const std::vector<GemmRow>& rows, std::string_view model, DType dtype, std::string_view kind) {
  double flops = 0;
  double at_peak = 0;
  for (const GemmRow& row : rows) {
    if (row.model != model || row.dtype != dtype || row.kind != kind) continue;
    flops += row.flops / row.peak;
    at_peak += row.seconds;
  }
  return at_peak > 0 ? flops / at_peak : 0;
}

void print_table(const std::vector<GemmRow>& rows, std::ostream& out) {
  out << "model   dtype      N      K      M groups  product       ms   GFLOP/s  % of peak\n";
  for (const GemmRow& row : rows) {
    out << absl::StrFormat("%-7s %-5s %6d %6d %6d %6d  %-7s %8.3f %9.1f %10.1f\n", std::string(row.model),
                           std::string(name_of(row.dtype)), row.shape.rows, row.shape.k, row.shape.m, row.shape.groups,
                           std::string(row.kind), row.seconds * 1e3, row.flops / row.seconds * 1e-9, 100 * row.share());
  }
}

}  // namespace

int run_bench_gemm(Words words, Session& session) {
  const GemmArguments options = parse_gemm(words);
  std::ostream& out = session.out;
  const std::unique_ptr<Backend> backend =
      kernels::make_backend({.device = options.device, .threads = options.threads});
  std::vector<GemmRow> rows;
  std::vector<std::string> algorithms;
  nlohmann::json json = {{"device", backend->description()}};
  if (!options.json) out << backend->description() << '\n';
  for (const DType dtype : options.dtypes) {
    const size_t first = rows.size();
    for (const GemmModel& model : options.models) measure_gemms(options, *backend, model, dtype, rows, algorithms);
    const double peak = median_peak(std::span(rows).subspan(first));
    const std::string dtype_name(name_of(dtype));
    json["peak_gflops"][dtype_name] = peak * 1e-9;
    if (!options.json) out << absl::StrFormat("peak %-5s %9.1f GFLOP/s\n", dtype_name, peak * 1e-9);
  }
  if (!options.json) print_table(rows, out);
  if (!algorithms.empty()) json["algorithms"] = algorithms;
  for (const std::string& line : algorithms)
    if (!options.json) out << line << '\n';
  for (const auto& [model, shapes] : options.models) {
    for (const DType dtype : options.dtypes) {
      for (const std::string_view kind : kKinds) {
        const double share = total_share(rows, model, dtype, kind);
        if (share == 0) continue;
        const std::string names[] = {std::string(model), std::string(name_of(dtype)), std::string(kind)};
        json["share_of_peak"][names[0]][names[1]][names[2]] = share;
        if (options.json) continue;
        out << absl::StrFormat("all of %-7s %-5s %-7s %6.1f %% of peak\n", names[0], names[1], names[2], 100 * share);
      }
    }
  }
  if (!options.json) return 0;
  for (const GemmRow& row : rows) {
    nlohmann::json entry = {
        {"model", row.model}, {"dtype", name_of(row.dtype)}, {"n", row.shape.rows}, {"k", row.shape.k},
        {"m", row.shape.m},   {"groups", row.shape.groups},  {"product", row.kind}};
    entry["ms"] = row.seconds * 1e3;
    entry["gflops"] = row.flops / row.seconds * 1e-9;
    entry["share_of_peak"] = row.share();
    json["rows"].push_back(std::move(entry));
  }
  out << json.dump(2) << '\n';
  return 0;
}

}  // namespace ashlar::launch
