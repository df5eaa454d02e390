#include "launch/commands/subcommands.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/optim/optimizer.h"
#include "core/tensor/tensor.h"
#include "kernels/make_backend.h"
#include "kernels/memory_bandwidth.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"

namespace ashlar::launch {
namespace {

struct Sizes {
  const char* name;
  int64_t N, C, F, V, heads, loss_rows, parameters, experts, choices;
};
constexpr Sizes kGpt2Sizes = {"gpt2", 1024, 768, 3072, 50304, 12, 256, 124475904 / 4, 64, 8};
constexpr Sizes kCharSizes = {"char", 768, 128, 512, 65, 4, 768, 804096, 8, 2};

struct KernelArguments {
  kernels::BackendConfig backend;
  std::vector<DType> dtypes;
  std::vector<Sizes> shapes;
  std::string only;
  double seconds = 0.1;  // time budget of a line of the table
  bool json = false;
};

KernelArguments parse_kernels(std::span<const std::string> words) {
  Arguments args("bench kernels", words);
  KernelArguments options;
  options.backend.device = args.option("--device").value_or(options.backend.device);
  options.backend.threads = static_cast<int>(args.integer("--threads", 0, 1, 1024));
  options.backend.max_isa = args.option("--isa").value_or("");
  options.only = args.option("--only").value_or("");
  options.seconds = args.number("--seconds", options.seconds, 1e-4, 60);
  options.json = args.flag("--json");
  options.dtypes = take_dtypes(args, {DType::kFloat32});
  const std::pair<std::string_view, std::vector<Sizes>> shapes[] = {
      {"gpt2", {kGpt2Sizes}}, {"char", {kCharSizes}}, {"all", {kGpt2Sizes, kCharSizes}}};
  options.shapes = args.choice("--shapes", shapes[2].second, shapes);
  args.options_only();
  return options;
}

/// Returns the seconds until the device has finished `calls` calls in a row.
double seconds_of(const std::function<void()>& call, int64_t calls, Stream& stream) {
  const double start = now_sec();
  for (int64_t i = 0; i < calls; ++i) call();
  stream.synchronize();
  return now_sec() - start;
}

/// Returns the median time of a call, in seconds, from at least five measurements in about `budget` seconds, after two
/// warm-up calls. On an asynchronous stream each measurement covers as many calls as take about a millisecond (at most
/// 1000), so that the host's wait for the device hardly counts.
double median_seconds(double budget, const std::function<void()>& call, Stream& stream) {
  const double first = seconds_of(call, 2, stream) / 2;
  const auto calls = stream.synchronous() ? 1 : std::clamp<int64_t>(std::llround(1e-3 / first), 1, 1000);
  std::vector<double> times;
  double total = 0;
  while (times.size() < 5 || (total < budget && times.size() < 100000)) {
    const double seconds = seconds_of(call, calls, stream);
    times.push_back(seconds / static_cast<double>(calls));
    total += seconds;
  }
  return quantile(std::move(times), 0.5);
}

struct KernelLine {
  std::string shapes, dtype, name;
  double seconds, bytes;
};

/// Measures every kernel with tensors of one set of sizes and one dtype.
class Bench {
 public:
  Bench(const KernelArguments& options, const Sizes& s, DType dtype, Backend& backend, std::vector<KernelLine>& lines)
      : options_(options),
        s_(s),
        dtype_(dtype),
        acc_(accumulate_dtype(dtype)),
        backend_(backend),
        lines_(lines),
        stream_(backend.make_stream()) {}

  void run() {
    norms();
    norms_in_parts();
    activations();
    rope();
    concat_shared_head();
    embedding();
    loss();
    head_rows();
    router();
    expert_rows();
    elementwise();
    optimizer();
  }

 private:
  MutView memory(DType dtype, int64_t rows, int64_t cols) {
    tensors_.push_back(Tensor::allocate(backend_.allocator(MemoryKind::kActivations), dtype, {rows, cols}));
    return tensors_.back().mut_view();
  }
  MutView matrix(DType dtype, int64_t rows, int64_t cols, double scale = 1) {
    const MutView view = memory(dtype, rows, cols);
    backend_.random_fill({.dst = view, .scale = scale, .seed = 1, .rng_stream = tensors_.size(), .global_cols = cols},
                         *stream_);
    return view;
  }
  MutView matrix(int64_t rows, int64_t cols) { return matrix(dtype_, rows, cols); }
  ConstView integers(const std::vector<int32_t>& values) {
    const MutView view = memory(DType::kInt32, 1, static_cast<int64_t>(values.size()));
    backend_.write(values.data(), view, *stream_);
    return view;
  }
  template <typename T>
  MutView structure(const T& value) {
    const MutView view = memory(DType::kUInt8, 1, sizeof(T));
    backend_.set_struct(SetStruct::of(value, view), *stream_);
    return view;
  }

  /// Measures a kernel and adds a line. `views` are the data that the kernel must read or write once; if the kernel
  /// must read and write a view, the view is listed twice.
  void time(const std::string& name, const std::vector<ConstView>& views, const std::function<void()>& call) {
    if (!options_.only.empty() && name.find(options_.only) == std::string::npos) return;
    double bytes = 0;
    for (const ConstView& v : views) bytes += static_cast<double>(v.size() * size_of(v.dtype));
    lines_.push_back(
        {s_.name, std::string(name_of(dtype_)), name, median_seconds(options_.seconds, call, *stream_), bytes});
  }

  void norms() {
    const MutView x = matrix(s_.N, s_.C), y = matrix(s_.N, s_.C), dy = matrix(s_.N, s_.C), dx = matrix(s_.N, s_.C);
    const MutView gamma = matrix(1, s_.C), beta = matrix(1, s_.C);
    const MutView dgamma = matrix(acc_, 1, s_.C), dbeta = matrix(acc_, 1, s_.C);
    const MutView mean = matrix(acc_, 1, s_.N), rstd = matrix(acc_, 1, s_.N);
    for (const bool layernorm : {true, false}) {
      const NormType type = layernorm ? NormType::kLayerNorm : NormType::kRmsNorm;
      const std::string name = layernorm ? "layernorm" : "rmsnorm";
      NormForward norm = {.x = x,
                          .gamma = gamma,
                          .beta = layernorm ? beta : MutView{},
                          .y = y,
                          .mean = layernorm ? mean : MutView{},
                          .rstd = rstd,
                          .variant = {.type = type}};
      time(name + "_forward", {x, y}, [&] { backend_.norm_forward(norm, *stream_); });
      norm.x = dx;
      time("residual_" + name, {x, dy, dx, y}, [&] {
        backend_.residual_norm_forward(
            {.residual = {.x = x, .delta = dy, .delta2 = {}, .y = dx, .dropout = {}, .dropout2 = {}}, .norm = norm},
            *stream_);
      });
      time(name + "_backward", {dy, x, dx}, [&] {
        backend_.norm_backward({.dy = dy,
                                .x = x,
                                .gamma = gamma,
                                .mean = layernorm ? mean : MutView{},
                                .rstd = rstd,
                                .dx = dx,
                                .dgamma = dgamma,
                                .dbeta = layernorm ? dbeta : MutView{},
                                .variant = {.type = type}},
                               *stream_);
      });
    }
  }

  /// The norm kernels for rows that are sharded over ranks.
  void norms_in_parts() {
    const MutView x = matrix(s_.N, s_.C), y = matrix(s_.N, s_.C), dy = matrix(s_.N, s_.C), dx = matrix(s_.N, s_.C);
    const MutView gamma = matrix(1, s_.C), dgamma = matrix(acc_, 1, s_.C), dbeta = matrix(acc_, 1, s_.C);
    const MutView mean = matrix(acc_, 1, s_.N), rstd = matrix(acc_, 1, s_.N);
    const MutView sum = matrix(acc_, 1, s_.N), sum2 = matrix(acc_, 1, s_.N);
    time("norm_row_stats", {x},
         [&] { backend_.norm_row_stats({.x = x, .center = mean, .sum = {}, .sum_squares = sum}, *stream_); });
    time("norm_apply", {x, y}, [&] {
      backend_.norm_apply({.x = x, .gamma = gamma, .beta = {}, .mean = {}, .rstd = rstd, .y = y}, *stream_);
    });
    time("norm_backward_row_sums", {dy, x}, [&] {
      backend_.norm_backward_row_sums(
          {.dy = dy, .x = x, .gamma = gamma, .mean = mean, .rstd = rstd, .sum_h = sum, .sum_hx = sum2}, *stream_);
    });
    time("norm_backward_apply", {dy, x, dx}, [&] {
      backend_.norm_backward_apply({.dy = dy,
                                    .x = x,
                                    .gamma = gamma,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .sum_h = sum,
                                    .sum_hx = sum2,
                                    .c_total = s_.C,
                                    .dx = dx,
                                    .dgamma = dgamma,
                                    .dbeta = dbeta},
                                   *stream_);
    });
  }

  void activations() {
    const MutView x = matrix(dtype_, s_.N, s_.F, 4), up = matrix(s_.N, s_.F), y = matrix(s_.N, s_.F);
    const MutView dy = matrix(s_.N, s_.F), dx = matrix(s_.N, s_.F), dup = matrix(s_.N, s_.F);
    struct Kind {
      const char* name;
      Activation kind;
    };
    for (const Kind k : {Kind{"relu", Activation::kRelu},
                         {"gelu_erf", Activation::kGeluErf},
                         {"gelu_tanh", Activation::kGeluTanh},
                         {"silu", Activation::kSilu},
                         {"relu2", Activation::kRelu2},
                         {"quick_gelu", Activation::kQuickGelu},
                         {"sigmoid", Activation::kSigmoid},
                         {"identity", Activation::kIdentity}}) {
      const std::string name = k.name;
      time(name + "_forward", {x, y},
           [&] { backend_.activation_forward({.x = x, .up = {}, .y = y, .kind = k.kind}, *stream_); });
      time(name + "_backward", {dy, x, dx}, [&] {
        backend_.activation_backward({.dy = dy, .x = x, .up = {}, .dx = dx, .dup = {}, .kind = k.kind}, *stream_);
      });
    }
    const MutView scalars = matrix(1, 2), dscalars = matrix(acc_, 1, 2);
    time("xielu_forward", {x, y}, [&] {
      backend_.activation_forward({.x = x, .up = {}, .scalars = scalars, .y = y, .kind = Activation::kXielu}, *stream_);
    });
    time("xielu_backward", {dy, x, dx}, [&] {
      backend_.activation_backward({.dy = dy,
                                    .x = x,
                                    .up = {},
                                    .scalars = scalars,
                                    .dx = dx,
                                    .dup = {},
                                    .dscalars = dscalars,
                                    .kind = Activation::kXielu},
                                   *stream_);
    });
    time("swiglu_forward", {x, up, y}, [&] { backend_.activation_forward({.x = x, .up = up, .y = y}, *stream_); });
    time("swiglu_backward", {dy, x, up, dx, dup},
         [&] { backend_.activation_backward({.dy = dy, .x = x, .up = up, .dx = dx, .dup = dup}, *stream_); });
  }

  void rope() {
    const int64_t dims = s_.C / s_.heads;
    const MutView x = matrix(s_.N, 3 * s_.C), y = matrix(s_.N, 3 * s_.C);
    const MutView cos = matrix(acc_, s_.N, dims / 2), sin = matrix(acc_, s_.N, dims / 2);
    std::vector<int32_t> positions(static_cast<size_t>(s_.N));
    std::iota(positions.begin(), positions.end(), 0);
    const ConstView rows = integers(positions);
    for (const bool half : {true, false}) {
      time(half ? "rope_half" : "rope_interleaved", {x, y}, [&] {
        backend_.rope({.x = x,
                       .y = y,
                       .positions = rows,
                       .cos = cos,
                       .sin = sin,
                       .heads = 3 * s_.heads,
                       .rotated_heads = 2 * s_.heads,
                       .head_dim = dims,
                       .dims = dims,
                       .style = half ? RopeStyle::kHalf : RopeStyle::kInterleaved},
                      *stream_);
      });
    }
  }

  void concat_shared_head() {
    // In each head, half of the columns have rotary position embeddings.
    const int64_t half = s_.C / s_.heads / 2;
    const MutView shared = matrix(s_.N, half), own = matrix(s_.N, s_.heads * half),
                  y = matrix(s_.N, 2 * s_.heads * half);
    time("concat_shared_head", {shared, own, y},
         [&] { backend_.concat_shared_head({.shared = shared, .own = own, .y = y, .heads = s_.heads}, *stream_); });
    time("concat_shared_head_backward", {y, shared, own}, [&] {
      backend_.concat_shared_head_backward({.dy = y, .dshared = shared, .down = own, .heads = s_.heads}, *stream_);
    });
  }

  void embedding() {
    const MutView table = matrix(s_.V, s_.C), out = matrix(s_.N, s_.C), dtable = matrix(acc_, s_.V, s_.C);
    std::vector<int32_t> ids(static_cast<size_t>(s_.N));
    std::vector<int32_t> order(ids.size());
    for (size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<int32_t>((n * 7919) % static_cast<size_t>(s_.V));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(
        order, [&](int32_t a, int32_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
    const ConstView id_rows = integers(ids), sorted = integers(order);
    time("embedding_forward", {out, out},
         [&] { backend_.embedding_forward({.ids = id_rows, .table = table, .out = out}, *stream_); });
    const ConstView named{nullptr, acc_, std::min(s_.N, s_.V), s_.C, s_.C};
    time("embedding_backward", {out, named, named}, [&] {
      backend_.embedding_backward({.ids = id_rows, .order = sorted, .dy = out, .dtable = dtable}, *stream_);
    });
    time("embedding_backward_first", {out, dtable}, [&] {
      backend_.embedding_backward(
          {.ids = id_rows, .order = sorted, .dy = out, .dtable = dtable, .mode = GradMode::kOverwrite}, *stream_);
    });
  }

  void loss() {
    const int64_t n = s_.loss_rows;
    const MutView logits = matrix(acc_, n, s_.V, 5), dlogits = matrix(n, s_.V);
    const MutView row_max = matrix(acc_, 1, n), row_sum = matrix(acc_, 1, n), target_logit = matrix(acc_, 1, n);
    std::vector<int32_t> targets(static_cast<size_t>(n));
    for (size_t i = 0; i < targets.size(); ++i)
      targets[i] = static_cast<int32_t>((i * 7919) % static_cast<size_t>(s_.V));
    LossShape shape{.targets = integers(targets), .vocab_begin = 0, .valid_cols = s_.V};
    const ConstView scalars = structure(StepScalars{.inv_valid_tokens = 1.0 / static_cast<double>(n)});
    const MutView stats = structure(LossStats{});
    LossRowStats row_stats = {
        .logits = logits, .row_max = row_max, .row_sum = row_sum, .target_logit = target_logit, .shape = shape};
    time("loss_row_stats", {logits}, [&] { backend_.loss_row_stats(row_stats, *stream_); });
    time("loss_reduce", {row_max, row_sum, target_logit}, [&] {
      backend_.loss_reduce(
          {.row_max = row_max, .row_sum = row_sum, .target_logit = target_logit, .shape = shape, .stats = stats},
          *stream_);
    });
    LossBackward backward = {.logits = logits,
                             .row_max = row_max,
                             .row_sum = row_sum,
                             .dlogits = dlogits,
                             .shape = shape,
                             .scalars = scalars};
    time("loss_backward", {logits, dlogits}, [&] { backend_.loss_backward(backward, *stream_); });
    time("loss_stats_and_grad", {logits, dlogits}, [&] {
      backend_.loss_stats_and_grad({.logits = logits,
                                    .row_max = row_max,
                                    .row_sum = row_sum,
                                    .target_logit = target_logit,
                                    .dlogits = dlogits,
                                    .shape = shape,
                                    .scalars = scalars},
                                   *stream_);
    });
    shape.softcap = 30;
    row_stats.shape = shape;
    time("loss_row_stats_capped", {logits}, [&] { backend_.loss_row_stats(row_stats, *stream_); });
    const MutView max_count = matrix(acc_, 1, n);
    time("loss_max_count", {logits}, [&] {
      backend_.loss_max_count({.logits = logits, .row_max = row_max, .max_count = max_count, .shape = shape}, *stream_);
    });
    backward.max_count = max_count;
    backward.shape = shape;
    backward.z_coef = 1e-4;
    time("loss_backward_capped", {logits, dlogits}, [&] { backend_.loss_backward(backward, *stream_); });
    std::vector<int32_t> masked(static_cast<size_t>(std::min<int64_t>(s_.V / 8, 8192)));
    std::iota(masked.begin(), masked.end(), 0);
    const ConstView ids = integers(masked);
    time("loss_mask", {{nullptr, acc_, n, static_cast<int64_t>(masked.size()), s_.V}},
         [&] { backend_.loss_mask({.logits = logits, .ids = ids}, *stream_); });
  }

  void head_rows() {
    const MutView w = matrix(s_.V, s_.C), y = matrix(s_.V, s_.C), dw = matrix(acc_, s_.V, s_.C),
                  dy = matrix(acc_, s_.V, s_.C), inverse = matrix(acc_, 1, s_.V);
    time("normalize_rows", {w, y}, [&] { backend_.normalize_rows({.w = w, .y = y, .inverse = inverse}, *stream_); });
    time("normalize_rows_backward", {dy, w, dw},
         [&] { backend_.normalize_rows_backward({.dy = dy, .w = w, .inverse = inverse, .dw = dw}, *stream_); });
  }

  void router() {
    const int64_t E = s_.experts, k = s_.choices;
    const MutView logits = matrix(acc_, s_.N, E), dlogits = matrix(acc_, s_.N, E), bias = matrix(acc_, 1, E);
    const MutView choices = memory(DType::kInt32, s_.N, k), weights = matrix(acc_, s_.N, k);
    for (const auto& [score, name] : names_of(RouterScore{})) {
      const RouterRule rule{.score = score, .renormalize = true};
      RouteForward forward{.logits = logits, .choices = choices, .weights = weights, .rule = rule};
      if (score == RouterScore::kSigmoid) forward.selection_bias = bias;
      time(str_cat("route_forward_", name), {logits, choices, weights},
           [&] { backend_.route_forward(forward, *stream_); });
      backend_.route_forward(forward, *stream_);
      time(str_cat("route_backward_", name), {logits, choices, weights, dlogits}, [&] {
        backend_.route_backward(
            {.logits = logits, .choices = choices, .dweights = weights, .dlogits = dlogits, .rule = rule}, *stream_);
      });
    }
    const MutView counts = matrix(DType::kFloat64, 1, E), scores = matrix(DType::kFloat64, 1, E);
    const MutView lse_squares = matrix(DType::kFloat64, 1, 1), entropy = matrix(DType::kFloat64, 1, 1);
    time("router_statistics", {logits, choices}, [&] {
      backend_.router_statistics({.logits = logits,
                                  .choices = choices,
                                  .counts = counts,
                                  .scores = scores,
                                  .lse_squares = lse_squares,
                                  .entropy = entropy,
                                  .sequence_rows = s_.N},
                                 *stream_);
    });
    const MutView balance = matrix(acc_, 1, E);
    time("balance_loss", {counts, scores, balance}, [&] {
      backend_.balance_loss({.counts = counts, .scores = scores, .balance = balance, .loss = entropy}, *stream_);
    });
    const MutView clip = memory(DType::kUInt8, 1, sizeof(ClipState));
    backend_.set_struct(SetStruct::of(ClipState{}, clip), *stream_);
    time("balance_update", {counts, bias, bias}, [&] {
      backend_.balance_update({.counts = counts, .selection_bias = bias, .clip = clip, .rate = 1e-3}, *stream_);
    });
  }

  void expert_rows() {
    const int64_t S = s_.N * s_.choices;
    std::vector<int32_t> experts(static_cast<size_t>(S));
    for (size_t i = 0; i < experts.size(); ++i)
      experts[i] = static_cast<int32_t>((i * 7919) % static_cast<size_t>(s_.experts));
    MutView choices = memory(DType::kInt32, s_.N, s_.choices);
    backend_.write(experts.data(), choices, *stream_);
    const MutView slots = memory(DType::kInt32, s_.N, s_.choices), offsets = memory(DType::kInt32, 1, s_.experts + 1);
    const auto sort = [&] {
      backend_.sort_choices({.choices = choices, .offsets = offsets, .slots = slots}, *stream_);
    };
    time("sort_choices", {choices, slots}, sort);
    sort();
    const MutView x = matrix(s_.N, s_.C), rows = matrix(S, s_.C), others = matrix(S, s_.C);
    const MutView weights = matrix(acc_, s_.N, s_.choices), dots = matrix(acc_, s_.N, s_.choices);
    time("dispatch_rows", {x, rows},
         [&] { backend_.dispatch_rows({.x = x, .slots = slots, .offsets = offsets, .rows = rows}, *stream_); });
    time("dispatch_rows_dots", {x, others, rows}, [&] {
      backend_.dispatch_rows({.x = x,
                              .slots = slots,
                              .offsets = offsets,
                              .weights = weights,
                              .others = others,
                              .rows = rows,
                              .dots = dots},
                             *stream_);
    });
    time("combine_rows", {rows, x},
         [&] { backend_.combine_rows({.rows = rows, .slots = slots, .weights = weights, .y = x}, *stream_); });
    const MutView y = matrix(s_.N, s_.C);
    time("combine_rows_dots", {rows, x, y},
         [&] { backend_.combine_rows({.rows = rows, .slots = slots, .others = x, .y = y, .dots = dots}, *stream_); });
  }

  void elementwise() {
    const MutView x = matrix(s_.N, s_.C), delta = matrix(s_.N, s_.C), y = matrix(s_.N, s_.C),
                  wide = matrix(acc_, s_.N, s_.C);
    const ConstView scalars = structure(StepScalars{});
    const DropoutArgs dropout{.p = 0.1, .seed = 1, .rng_stream = 2, .scalars = scalars, .sequence_length = s_.N};
    time("residual", {x, delta, y}, [&] {
      backend_.residual_forward({.x = x, .delta = delta, .delta2 = {}, .y = y, .dropout = {}, .dropout2 = {}},
                                *stream_);
    });
    time("residual_dropout", {x, delta, y}, [&] {
      backend_.residual_forward({.x = x, .delta = delta, .delta2 = {}, .y = y, .dropout = dropout, .dropout2 = {}},
                                *stream_);
    });
    time("dropout_backward", {delta, y},
         [&] { backend_.dropout_backward({.dy = delta, .ddelta = y, .dropout = dropout}, *stream_); });
    const MutView factor = matrix(1, 1), dfactor = matrix(acc_, 1, 1);
    time("learned_scale", {x, y}, [&] { backend_.learned_scale({.x = x, .s = factor, .y = y}, *stream_); });
    time("learned_scale_backward", {delta, x, y}, [&] {
      backend_.learned_scale_backward({.dy = delta, .x = x, .s = factor, .dx = y, .ds = dfactor}, *stream_);
    });
    time("copy_from_accumulate", {wide, y}, [&] { backend_.copy({.src = wide, .dst = y}, *stream_); });
    time("copy_accumulate", {x, wide, wide},
         [&] { backend_.copy({.src = x, .dst = wide, .mode = GradMode::kAccumulate}, *stream_); });
    time("fill", {y}, [&] { backend_.fill({.dst = y, .value = 0}, *stream_); });
  }

  void optimizer() {
    const int64_t size = s_.parameters;
    const ConstView clip = structure(ClipState{});
    Ctx ctx{.backend = backend_, .stream = *stream_, .dtype = dtype_};
    ctx.scalars = structure(StepScalars{.lr = 1e-4});
    for (const auto& [kind, name] : optim::names_of(optim::OptimizerKind{})) {
      nn::ParameterStore store;
      store.add("w", {1, size}, {{.name = "w", .global_shape = {1, size}, .rows = 1, .cols = size}});
      store.allocate(ctx, true);
      const auto optimizer =
          optim::make_optimizer(ctx, store, optim::rule_of(kind).defaults, nn::FlatRanges::whole(store));
      store.initialize(ctx, 1, store.grads());
      std::vector<ConstView> moved = {store.grads().view()};
      const auto read_and_written = [&](const Tensor& t) { moved.insert(moved.end(), 2, t.view()); };
      read_and_written(optimizer->master().data);
      for (const auto& [state, tensor] : optimizer->state()) {
        backend_.fill({.dst = tensor.data.mut_view(), .value = 1}, *stream_);
        read_and_written(tensor.data);
      }
      if (acc_ != dtype_) moved.push_back(store.values().view());
      time(std::string(name), moved, [&] { optimizer->step(ctx, clip); });
    }
    const SquaresSegment all{.size = size};
    const ConstView squares = structure(all);
    const MutView grad = matrix(acc_, 1, size), partials = matrix(DType::kFloat64, 1, all.num_chunks()),
                  sums = matrix(DType::kFloat64, 1, 1);
    time("sum_squares", {grad},
         [&] { backend_.sum_squares({.x = grad, .segments = squares, .partials = partials, .sums = sums}, *stream_); });
    const MutView fresh = matrix(1, size);
    time("random_normal", {fresh},
         [&] { backend_.random_fill({.dst = fresh, .seed = 1, .rng_stream = 2, .global_cols = size}, *stream_); });
  }

  const KernelArguments& options_;
  Sizes s_;
  DType dtype_;
  DType acc_;
  Backend& backend_;
  std::vector<KernelLine>& lines_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Stream> stream_;
};

/// Measures the memory bandwidth of a device with its copy kernel, on two arrays of 256 MB, or of 2 MB if a copy of 2
/// MB takes a millisecond or more.
kernels::MemoryBandwidth measure_copy(Backend& backend) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  const int64_t cols = 1 << 16;
  kernels::MemoryBandwidth bandwidth;
  double seconds = 0;
  for (int64_t rows = 8; rows <= 1 << 10 && seconds < 1e-3; rows *= 128) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 2; ++i)
      tensors.push_back(Tensor::allocate(backend.allocator(MemoryKind::kActivations), DType::kFloat32, {rows, cols}));
    backend.fill({.dst = tensors[0].mut_view(), .value = 1}, *stream);
    seconds = median_seconds(
        0.2, [&] { backend.copy({.src = tensors[0].view(), .dst = tensors[1].mut_view()}, *stream); }, *stream);
    bandwidth.copy = 8.0 * static_cast<double>(rows * cols) / seconds;
  }
  return bandwidth;
}

void print_table(std::ostream& out, const std::vector<KernelLine>& lines, const kernels::MemoryBandwidth& w) {
  if (w.read > 0) {
    out << absl::StrFormat("memory: read %.1f GB/s, copy %.1f GB/s, triad %.1f GB/s, update in place %.1f GB/s\n",
                           w.read * 1e-9, w.copy * 1e-9, w.triad * 1e-9, w.update * 1e-9);
  } else {
    out << absl::StrFormat("memory: copy %.1f GB/s\n", w.copy * 1e-9);
  }
  out << absl::StrFormat("%-5s %-5s %-26s %12s %9s %9s\n", "sizes", "dtype", "kernel", "time us", "GB/s", "% memory");
  for (const KernelLine& l : lines) {
    const double rate = l.bytes / l.seconds;
    out << absl::StrFormat("%-5s %-5s %-26s %12.1f %9.2f %9.1f\n", l.shapes, l.dtype, l.name, l.seconds * 1e6,
                           rate * 1e-9, 100 * rate / w.best());
  }
}

void print_json(std::ostream& out, const std::vector<KernelLine>& lines, const kernels::MemoryBandwidth& w,
                const std::string& device) {
  nlohmann::json rows = nlohmann::json::array();
  for (const KernelLine& l : lines) {
    rows.push_back({{"sizes", l.shapes},
                    {"dtype", l.dtype},
                    {"kernel", l.name},
                    {"seconds", l.seconds},
                    {"bytes", l.bytes},
                    {"bytes_per_sec", l.bytes / l.seconds},
                    {"share_of_memory", l.bytes / l.seconds / w.best()}});
  }
  out << nlohmann::json{{"device", device},
                        {"read_bytes_per_sec", w.read},
                        {"copy_bytes_per_sec", w.copy},
                        {"triad_bytes_per_sec", w.triad},
                        {"update_bytes_per_sec", w.update},
                        {"kernels", rows}}
             .dump()
      << "\n";
}

}  // namespace

int run_bench_kernels(Words words, Session& session) {
  const KernelArguments options = parse_kernels(words);
  std::ostream& out = session.out;
  const std::unique_ptr<Backend> made = kernels::make_backend(options.backend);
  Backend& backend = *made;
  if (!options.json) out << backend.description() << "\n";
  const int threads = options.backend.threads > 0 ? options.backend.threads : kernels::usable_cores();
  const bool on_host = options.backend.device == "cpu";
  const kernels::MemoryBandwidth bandwidth =
      on_host ? kernels::measure_memory_bandwidth(threads, backend.allocator(MemoryKind::kActivations))
              : measure_copy(backend);
  std::vector<KernelLine> lines;
  for (const Sizes& sizes : options.shapes) {
    for (const DType dtype : options.dtypes) Bench(options, sizes, dtype, backend, lines).run();
  }
  if (lines.empty())
    throw input_error("bench kernels", "--only ", options.only,
                      " matches no kernel; run without --only to see the names of all kernels");
  if (options.json) {
    print_json(out, lines, bandwidth, backend.description());
  } else {
    print_table(out, lines, bandwidth);
  }
  return 0;
}

}  // namespace ashlar::launch
