#include "launch/layout_check/comparison.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/optim/optimizer.h"
#include "parallel/comm/host.h"

namespace ashlar::layout_check {

namespace {

double norm_of(std::span<const double> values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares);
}

double largest_of(std::span<const double> values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

/// Places tensors in the order of the model: embeddings, blocks by number, the rest.
std::pair<int64_t, std::string_view> place_of(const std::string& name) {
  constexpr std::string_view kBlocks = "blocks.";
  if (name.starts_with("embed.")) return {-1, name};
  int64_t block = std::numeric_limits<int64_t>::max();
  if (name.starts_with(kBlocks)) {
    const std::string_view number = std::string_view(name).substr(kBlocks.size());
    std::from_chars(number.data(), number.data() + number.size(), block);
  }
  return {block, name};
}

/// The names of the reference's tensors, those nearest to the loss first.
std::vector<std::string> names_in_backward_order(comm::ControlPlane& ranks, const Reference* reference) {
  std::vector<std::string> names;
  if (reference != nullptr) {
    for (const auto& [name, tensor] : reference->tensors) names.push_back(name);
    std::ranges::sort(names, std::greater(), place_of);
  }
  return absl::StrSplit(comm::broadcast_text(ranks, absl::StrJoin(names, "\n"), 0), '\n');
}

/// Gives each rank the vector of rank 0, whose size is known to it alone.
std::vector<double> broadcast(comm::ControlPlane& ranks, const std::vector<double>* values) {
  std::vector<double> all(static_cast<size_t>(comm::broadcast_value(ranks, values ? std::ssize(*values) : 0, 0)));
  if (values != nullptr) all = *values;
  comm::broadcast_bytes(ranks, std::as_writable_bytes(std::span(all)), 0);
  return all;
}

/// Elements [first, first + size) of the part of a global tensor that a rank holds.
std::vector<double> part_of(std::span<const double> global, const nn::ShardedTensor& tensor, int64_t first,
                            int64_t size) {
  const int64_t width = tensor.global_shape.cols();
  std::vector<double> part;
  for (int64_t i = first; i < first + size; ++i)
    part.push_back(global[(tensor.global_row + i / tensor.cols) * width + tensor.global_col + i % tensor.cols]);
  return part;
}

/// The first update u(x) = x / (|x| + eps) of AdamW, sign(x) of Lion, as a share of the learning rate: how much it
/// changes within [x - off, x + off]. Since u grows with x, it changes most at an end.
double change_of_update(const optim::OptimizerOptions& rule, double x, double off) {
  const auto u = [&](double v) {
    if (v == 0) return 0.0;
    return rule.kind == optim::OptimizerKind::kLion ? std::copysign(1.0, v) : v / (std::abs(v) + rule.eps);
  };
  return std::max(u(x + off) - u(x), u(x) - u(x - off));
}

/// Compares tensor by tensor, so that a rank holds one global tensor at a time.
class TensorComparison {
 public:
  TensorComparison(CheckedStep& step, const config::RunConfig& config, const Reference* reference)
      : step_(step), config_(config), reference_(reference), bounds_(bounds_of(config.run.dtype)) {
    double squares = 0;
    for (const auto& [name, tensor] : reference ? reference->tensors : kNone)
      squares += norm_of(tensor.gradient) * norm_of(tensor.gradient);
    all_ = comm::broadcast_value(ranks(), std::sqrt(squares), 0);
  }

  void gradient(TensorDifference& difference) {
    const std::vector<double> expected = broadcast(ranks(), reference_ ? &of(difference.name).gradient : nullptr);
    const double size = scale_of(difference.name, expected);
    double squares = 0, largest = 0, held = 0;
    for (const nn::ShardedRange& range : step_.engine().optimizer()->ranges()) {
      if (range.ref->tensor->name != difference.name) continue;
      const std::vector<double> got = read(step_.engine().store().grads().flat_range(range.flat_begin, range.size));
      const std::vector<double> want = part_of(expected, *range.ref->tensor, range.first, range.size);
      for (size_t i = 0; i < got.size(); ++i) {
        // A value that is not a number would lose every comparison.
        const double off = std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : std::numeric_limits<double>::infinity();
        squares += off * off;
        largest = std::max(largest, off);
      }
      if (range.ref->tensor->main_replica) held += static_cast<double>(range.size);
    }
    difference.gradient = comm::max_of(ranks(), share(std::sqrt(squares), size));
    difference.gradient_ulps = comm::max_of(ranks(), share(largest, bounds_.epsilon * largest_of(expected)));
    difference.not_held = std::ssize(expected) - static_cast<int64_t>(comm::sum_of(ranks(), held));
  }

  void weights(TensorDifference& difference) {
    const std::vector<double> gradient = broadcast(ranks(), reference_ ? &of(difference.name).gradient : nullptr);
    const std::vector<double> expected = broadcast(ranks(), reference_ ? &of(difference.name).weights : nullptr);
    const double lr =
        config_.optimizer.lr * comm::broadcast_value(ranks(), reference_ ? of(difference.name).lr_scale : 0.0, 0);
    const double error = bounds_.relative * scale_of(difference.name, gradient);
    double worst = 0, largest = 0;
    for (const auto& ref : step_.engine().store().sharded_tensors()) {
      const nn::ShardedTensor& tensor = *ref.tensor;
      if (tensor.name != difference.name) continue;
      const std::vector<double> got = read(nn::ParameterStore::of(step_.engine().store().values(), ref));
      const std::vector<double> want = part_of(expected, tensor, 0, tensor.size());
      const std::vector<double> grad = part_of(gradient, tensor, 0, tensor.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const double off = std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : std::numeric_limits<double>::infinity();
        worst = std::max(worst, off / allowed(grad[i], error, want[i], lr));
        largest = std::max(largest, off);
      }
    }
    difference.weight = comm::max_of(ranks(), worst);
    difference.weight_ulps = comm::max_of(ranks(), share(largest, bounds_.epsilon * largest_of(expected)));
  }

 private:
  static inline const std::map<std::string, TensorNumbers> kNone;

  comm::ControlPlane& ranks() { return step_.mesh().control(); }
  const TensorNumbers& of(const std::string& name) const { return reference_->tensors.at(name); }
  std::vector<double> read(const Tensor& tensor) const { return host_values(step_.engine().ctx(), tensor); }
  static double share(double part, double whole) { return part == 0 ? 0 : part / whole; }

  /// The size that a tensor's gradient counts with (Bounds).
  double scale_of(const std::string& name, std::span<const double> gradient) {
    constexpr std::string_view kKeyBias = "attn.k.bias";
    double size = norm_of(gradient);
    if (name.ends_with(kKeyBias)) {  // rounding of the sums that make the gradient of the key weights
      const std::string weight = name.substr(0, name.size() - kKeyBias.size()) + "attn.k.weight";
      size = std::max(size, comm::broadcast_value(ranks(), reference_ ? norm_of(of(weight).gradient) : 0.0, 0));
    }
    const bool scalar = name.find(".ffn.alpha_") != name.npos || name.ends_with(".out_scalar");
    return std::max(size, (scalar ? 1e-3 : 1e-4) * all_);
  }

  /// How far an updated weight may lie from the reference if its gradient may be off by `error`.
  double allowed(double gradient, double error, double weight, double lr) const {
    const double clip = step_.result().clip_scale, x = clip * gradient;
    const double change = change_of_update(config_.optimizer.rule, x, clip * error + std::abs(x) * bounds_.relative);
    // Some roundings between gradient and update on either side, and those of the weight and its decay.
    return lr * change + bounds_.epsilon * (32 * lr + 8 * std::abs(weight));
  }

  CheckedStep& step_;
  const config::RunConfig& config_;
  const Reference* reference_;
  const Bounds bounds_;
  double all_ = 0;  ///< |all gradients| of one rank
};

/// Numbers of the step itself. Counts must be equal.
std::vector<NumberDifference> compare_numbers(const training::StepResult& got, const training::StepResult& want,
                                              const Bounds& bounds) {
  std::vector<NumberDifference> differences;
  const auto compare = [&](const char* name, double a, double b, double size) {
    if (!(std::abs(a - b) <= bounds.relative * std::abs(size))) differences.push_back({name, a, b});
  };
  compare("valid targets", static_cast<double>(got.valid_targets), static_cast<double>(want.valid_targets), 0);
  compare("tokens", static_cast<double>(got.tokens), static_cast<double>(want.tokens), 0);
  compare("loss", got.loss, want.loss, want.loss);
  compare("z-loss", got.z_loss, want.z_loss, want.loss);
  compare("gradient norm", got.grad_norm, want.grad_norm, want.grad_norm);
  compare("clip scale", got.clip_scale, want.clip_scale, want.clip_scale);
  // Metrics of layers; a layout may have further ones, e.g. of experts that ranks divide.
  const std::map<std::string, double> layers(got.layers.begin(), got.layers.end());
  for (const auto& [name, value] : want.layers) {
    const auto found = layers.find(name);
    compare(name.c_str(), found == layers.end() ? std::numeric_limits<double>::quiet_NaN() : found->second, value,
            std::max(std::abs(value), std::abs(want.loss)));
  }
  if (got.expert_counts != want.expert_counts) {
    const auto mismatch = std::ranges::mismatch(got.expert_counts, want.expert_counts);
    const bool inside = mismatch.in1 != got.expert_counts.end() && mismatch.in2 != want.expert_counts.end();
    differences.push_back({"tokens of an expert", inside ? *mismatch.in1 : 0, inside ? *mismatch.in2 : 0});
  }
  return differences;
}

}  // namespace

Bounds bounds_of(DType dtype) {
  if (dtype == DType::kFloat64) return {};
  return {.relative = 2e-5, .epsilon = 0x1p-23};
}

bool differs(const TensorDifference& tensor, const Bounds& bounds) {
  return !(tensor.gradient <= bounds.relative) || tensor.not_held != 0 || !(tensor.weight <= 1);
}

bool LayoutDifference::equal(const Bounds& bounds) const {
  return numbers.empty() &&
         std::ranges::none_of(tensors, [&](const TensorDifference& tensor) { return differs(tensor, bounds); });
}

LayoutDifference compare(CheckedStep& step, const config::RunConfig& config, const Reference* reference,
                         const Tamper& tamper) {
  comm::ControlPlane& ranks = step.mesh().control();
  LayoutDifference all;
  step.gradients();
  if (tamper) step.tamper(tamper);
  if (reference != nullptr)
    all.numbers = compare_numbers(step.result(), reference->result, bounds_of(config.run.dtype));
  TensorComparison tensors(step, config, reference);
  for (const std::string& name : names_in_backward_order(ranks, reference)) {
    TensorDifference& difference = all.tensors.emplace_back();
    difference.name = name;
    tensors.gradient(difference);
  }
  step.update();
  for (TensorDifference& difference : all.tensors) tensors.weights(difference);
  return all;
}

}  // namespace ashlar::layout_check
