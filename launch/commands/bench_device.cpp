#include "launch/commands/subcommands.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/device/host_limits.h"
#include "core/io/atomic_file.h"
#include "core/optim/optimizer.h"
#include "kernels/make_backend.h"
#include "kernels/memory_bandwidth.h"
#include "launch/commands/arguments.h"
#include "launch/commands/attention_problem.h"
#include "launch/commands/random_matrix.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"
#include "launch/plan/device.h"
#include "launch/plan/fit.h"
#include "launch/plan/step_time.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

constexpr int64_t kDeviceRows = 1024;
struct DeviceProduct {
  int64_t k, m;
};
constexpr std::array<DeviceProduct, 4> kDeviceProducts = {DeviceProduct{64, 256}, DeviceProduct{128, 512},
                                                          DeviceProduct{384, 1024}, DeviceProduct{1024, 1024}};
constexpr std::array<AttentionSizes, 4> kDeviceAttention = {
    AttentionSizes{"32", 8, 128, 4, 32}, AttentionSizes{"64", 4, 256, 8, 64}, AttentionSizes{"64 long", 1, 1024, 8, 64},
    AttentionSizes{"128", 1, 1024, 4, 128}};
constexpr int64_t kDeviceParameters = 16 << 20;  // their state is larger than caches
constexpr std::array<int64_t, 5> kDeviceMessages = {64, 64 << 10, 256 << 10, 1 << 20, 4 << 20};  // bytes

/// Measures one rank, while the other ranks of the machine measure themselves.
class DeviceBench {
 public:
  DeviceBench(Backend& backend, double seconds)
      : backend_(backend), stream_(backend.make_stream()), seconds_(seconds) {}

  void measure(DType dtype, plan::DtypeRates& rates, std::vector<plan::AttentionRates>& attention) {
    rates.peak = backend_.measure_peak(dtype, seconds_);
    measure_products(dtype, rates);
    rates.streaming = streaming(dtype);
    for (const AttentionSizes& size : kDeviceAttention) attention.push_back(attention_of(dtype, size));
  }

  /// Bytes/s of an update with AdamW in bf16, by the bytes that a step's prediction counts.
  double optimizer() {
    Ctx ctx{.backend = backend_, .stream = *stream_, .dtype = DType::kBFloat16, .scalars = {}};
    const Tensor scalars = ctx.make_struct(StepScalars{.lr = 1e-4}), clip = ctx.make_struct(ClipState{});
    ctx.scalars = scalars.view();
    nn::ParameterStore store;
    store.add("w", {1, kDeviceParameters},
              {{.name = "w", .global_shape = {1, kDeviceParameters}, .rows = 1, .cols = kDeviceParameters}});
    store.allocate(ctx, true);
    const auto rule = optim::make_optimizer(ctx, store, {}, nn::FlatRanges::whole(store));
    store.initialize(ctx, 1, store.grads());
    for (const auto& [state, tensor] : rule->state())
      backend_.fill({.dst = tensor.data.mut_view(), .value = 1}, *stream_);
    return plan::kUpdateBytes * static_cast<double>(kDeviceParameters) / time([&] { rule->step(ctx, clip.view()); });
  }

  /// Seconds of a kernel that has next to nothing to do.
  double gap() {
    const Tensor one = random(DType::kFloat32, 1, 16);
    return time([&] { backend_.fill({.dst = one.mut_view(), .value = 0}, *stream_); });
  }

 private:
  /// Seconds of a call when nothing else runs on the machine: a low quantile, since other load only makes calls slower.
  double time(const std::function<void()>& call) {
    const auto timed = [&] {
      const double start = now_sec();
      call();
      stream_->synchronize();
      return now_sec() - start;
    };
    timed();
    std::vector<double> times;
    for (const double begin = now_sec(); times.size() < 8 || now_sec() - begin < seconds_;) times.push_back(timed());
    return quantile(std::move(times), 0.05);
  }
  Tensor random(DType dtype, int64_t rows, int64_t cols) {
    return random_matrix(backend_, *stream_, dtype, rows, cols, 1);
  }

  void measure_products(DType dtype, plan::DtypeRates& rates) {
    std::vector<plan::ProductSample> samples;
    for (const auto [k, m] : kDeviceProducts) {
      const Tensor x = random(dtype, kDeviceRows, k), w = random(dtype, m, k), y = random(dtype, kDeviceRows, m);
      const Tensor dx = random(dtype, kDeviceRows, k), dw = random(accumulate_dtype(dtype), m, k);
      const double flops = 2.0 * static_cast<double>(kDeviceRows) * static_cast<double>(k) * static_cast<double>(m);
      const auto add = [&](int64_t terms, const std::function<void()>& call) {
        samples.push_back({.flops = flops, .terms = static_cast<double>(terms), .seconds = time(call)});
      };
      add(k, [&] { backend_.linear_forward({.x = x.view(), .w = w.view(), .bias = {}, .y = y.mut_view()}, *stream_); });
      add(m, [&] { backend_.linear_backward_input({.dy = y.view(), .w = w.view(), .dx = dx.mut_view()}, *stream_); });
      add(kDeviceRows, [&] {
        backend_.linear_backward_weight(
            {.dy = y.view(), .x = x.view(), .dw = dw.mut_view(), .dbias = {}, .mode = GradMode::kAccumulate}, *stream_);
      });
    }
    fit_products(samples, rates);
  }

  /// Bytes/s of the kernels between the products of a block, all together.
  double streaming(DType dtype) {
    constexpr int64_t kCols = 512, kHidden = 1024;
    const Tensor x = random(dtype, kDeviceRows, kCols), y = random(dtype, kDeviceRows, kCols),
                 dy = random(dtype, kDeviceRows, kCols);
    const Tensor gamma = random(dtype, 1, kCols), dgamma = random(accumulate_dtype(dtype), 1, kCols);
    const Tensor rstd = random(accumulate_dtype(dtype), 1, kDeviceRows);
    const Tensor gate = random(dtype, kDeviceRows, kHidden), up = random(dtype, kDeviceRows, kHidden),
                 out = random(dtype, kDeviceRows, kHidden), dgate = random(dtype, kDeviceRows, kHidden),
                 dup = random(dtype, kDeviceRows, kHidden);
    const double seconds = time([&] {
      backend_.norm_forward({.x = x.view(),
                             .gamma = gamma.view(),
                             .beta = {},
                             .y = y.mut_view(),
                             .mean = {},
                             .rstd = rstd.mut_view(),
                             .variant = {.type = NormType::kRmsNorm}},
                            *stream_);
      backend_.activation_forward({.x = gate.view(), .up = up.view(), .y = out.mut_view()}, *stream_);
      backend_.residual_forward(
          {.x = x.view(), .delta = dy.view(), .delta2 = {}, .y = y.mut_view(), .dropout = {}, .dropout2 = {}},
          *stream_);
      backend_.activation_backward(
          {.dy = out.view(), .x = gate.view(), .up = up.view(), .dx = dgate.mut_view(), .dup = dup.mut_view()},
          *stream_);
      backend_.norm_backward({.dy = dy.view(),
                              .x = x.view(),
                              .gamma = gamma.view(),
                              .mean = {},
                              .rstd = rstd.view(),
                              .dx = y.mut_view(),
                              .dgamma = dgamma.mut_view(),
                              .dbeta = {},
                              .variant = {.type = NormType::kRmsNorm}},
                             *stream_);
    });
    constexpr double kNumbers = (2 + 3 + 3) * kCols + (3 + 5) * kHidden;
    return kNumbers * static_cast<double>(kDeviceRows * size_of(dtype)) / seconds;
  }

  plan::AttentionRates attention_of(DType dtype, const AttentionSizes& size) {
    const AttentionProblem problem({.backend = backend_, .stream = *stream_, .dtype = dtype, .scalars = {}}, size, 0);
    const double products = 2 * size.products();
    return {.head_dim = size.D,
            .tokens = size.T,
            .forward = 2 * products / time([&] { problem.forward(); }),
            .backward = 5 * products / time([&] { problem.backward(); })};
  }

  Backend& backend_;
  const std::unique_ptr<Stream> stream_;
  const double seconds_;
};

/// The link between the ranks of a machine, from all-reduces of all of them.
plan::Link measure_link(comm::Communicator& all, double seconds) {
  SynchronousStream stream;
  const auto n = static_cast<double>(all.size());
  std::vector<plan::LinkSample> samples;
  for (const int64_t bytes : kDeviceMessages) {
    std::vector<float> values(static_cast<size_t>(bytes) / sizeof(float), 1.0F);
    const auto size = std::ssize(values);
    const MutView view{values.data(), DType::kFloat32, 1, size, size};
    const auto call = [&] { all.all_reduce({.in = view, .out = view, .op = comm::ReduceOp::kMax}, stream).wait(); };
    // All ranks make the same number of calls: that of the slowest at its first try.
    call();
    const double start = now_sec();
    call();
    double first = now_sec() - start;
    const MutView one{&first, DType::kFloat64, 1, 1, 1};
    all.all_reduce({.in = one, .out = one, .op = comm::ReduceOp::kMax}, stream).wait();
    std::vector<double> times(static_cast<size_t>(std::clamp(4 * seconds / std::max(first, 1e-7), 8.0, 2000.0)));
    for (double& time : times) {
      const double begin = now_sec();
      call();
      time = now_sec() - begin;
    }
    samples.push_back({.bytes = 2 * (n - 1) / n * static_cast<double>(bytes),
                       .latencies = 2 * (n - 1),
                       .seconds = *std::ranges::min_element(times)});
  }
  return fastest_link(samples);
}

/// The means of all ranks' rates, so that a plan for them does not rest on one.
plan::Device averaged(comm::ControlPlane& ranks, int size, plan::Device device) {
  const auto mean = [&](double& value) { value = comm::sum_of(ranks, value) / size; };
  for (plan::DtypeRates* rates : {&device.bf16, &device.fp32})
    for (double* value : {&rates->peak, &rates->sustained, &rates->half_terms, &rates->streaming}) mean(*value);
  for (std::vector<plan::AttentionRates>* rows : {&device.attention_bf16, &device.attention_fp32}) {
    for (plan::AttentionRates& row : *rows) {
      mean(row.forward);
      mean(row.backward);
    }
  }
  for (double* value : {&device.bandwidth, &device.optimizer, &device.launch_gap}) mean(*value);
  return device;
}

void print_device(const plan::Device& d, std::ostream& out) {
  for (const auto& [name, rates] : {std::pair("bf16", &d.bf16), {"fp32", &d.fp32}}) {
    out << absl::StrFormat("%s: peak %.0f GFLOP/s; products sustain %.0f, half of it at %.0f terms; rows %.1f GB/s\n",
                           name, rates->peak * 1e-9, rates->sustained * 1e-9, rates->half_terms,
                           rates->streaming * 1e-9);
  }
  out << absl::StrFormat("memory %.1f GB/s, optimizer %.1f GB/s\n", d.bandwidth * 1e-9, d.optimizer * 1e-9);
  if (d.intra.bandwidth > 0)
    out << absl::StrFormat("between ranks %.2f GB/s, %.1f us\n", d.intra.bandwidth * 1e-9, d.intra.latency * 1e6);
}

}  // namespace

int run_bench_device(Words words, Session& session) {
  comm::Bootstrap& bootstrap = session.bootstrap;
  std::string path;
  double seconds = 0;
  int threads = 1;
  comm::try_on_all_ranks(bootstrap.control(), [&] {
    Arguments args("bench device", words);
    path = args.option("--out").value_or(plan::measured_device_path());
    threads = static_cast<int>(args.integer("--threads", session.cores.threads, 1, 1024));
    seconds = args.number("--seconds", 0.25, 1e-4, 60);
    args.options_only();
    if (path.empty())
      throw input_error("bench device", "expected --out FILE, since neither XDG_CACHE_HOME nor HOME is set");
  });
  const std::unique_ptr<Backend> backend = kernels::make_backend({.threads = threads});
  DeviceBench bench(*backend, seconds);
  const int64_t local = bootstrap.local_size();
  plan::Device device{
      .name = path,
      .title = backend->description(),
      .source = str_cat("measured by ashlar bench device, ", local, local == 1 ? " rank of " : " ranks of ", threads,
                        threads == 1 ? " thread" : " threads"),
      .kind = plan::DeviceKind::kCpu,
      .capacity = std::max<int64_t>(memory_left_bytes() / local, 1),
      .threads = threads,
      .ranks_per_node = std::max<int64_t>(session.cores.machine, local)};
  bench.measure(DType::kBFloat16, device.bf16, device.attention_bf16);
  bench.measure(DType::kFloat32, device.fp32, device.attention_fp32);
  device.bandwidth = kernels::measure_memory_bandwidth(threads, backend->allocator(MemoryKind::kActivations)).best();
  device.optimizer = bench.optimizer();
  device.launch_gap = bench.gap();
  comm::Communicator& all = bootstrap.world();
  if (all.size() > 1) device.intra = measure_link(all, seconds);
  device = averaged(bootstrap.control(), all.size(), device);
  comm::try_on_first_rank(bootstrap.control(), [&] {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    io::write_file_atomically(path, plan::to_toml(device));
    session.out << device.title << "\n";
    print_device(device, session.out);
    session.out << "wrote " << path << "\n";
  });
  return 0;
}

}  // namespace ashlar::launch
