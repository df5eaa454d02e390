#include "launch/layout_check/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/optim/optimizer.h"
#include "launch/layout_check/backward_order.h"
#include "parallel/comm/host.h"

namespace ashlar::layout_check {

namespace {

constexpr const char* kGradientNorm = "gradient norm";
constexpr const char* kClipScale = "clip scale";

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

/// What all ranks must know of a tensor of the reference.
struct TensorFacts {
  std::string name;
  int64_t elements = 0;
  double lr_scale = 1;
  double size = 0;  ///< that its gradient counts with (Bounds)
};

double size_of_gradient(const Reference& reference, const std::string& name, double all) {
  constexpr std::string_view kKeyBias = "attn.k.bias";
  double size = norm_of(reference.tensors.at(name).gradient);
  if (name.ends_with(kKeyBias)) {  // what is left is rounding of the sums that make the gradient of the key weights
    const std::string weight = name.substr(0, name.size() - kKeyBias.size()) + "attn.k.weight";
    size = std::max(size, norm_of(reference.tensors.at(weight).gradient));
  }
  const bool scalar = name.find(".ffn.alpha_") != name.npos || name.ends_with(".out_scalar");
  return std::max(size, (scalar ? 1e-3 : 1e-4) * all);
}

/// The tensors of the reference, those nearest to the loss first. (all ranks; `reference` on rank 0)
std::vector<TensorFacts> tensors_in_backward_order(comm::ControlPlane& ranks, const Reference* reference,
                                                   model::NormPlacement placement) {
  std::vector<std::string> lines;
  if (reference != nullptr) {
    std::vector<std::string> names;
    double squares = 0;
    for (const auto& [name, tensor] : reference->tensors) {
      names.push_back(name);
      squares += norm_of(tensor.gradient) * norm_of(tensor.gradient);
    }
    sort_as_backward_meets(names, placement);
    for (const std::string& name : names) {
      const TensorNumbers& tensor = reference->tensors.at(name);
      lines.push_back(absl::StrFormat("%s %d %.17g %.17g", name, tensor.gradient.size(), tensor.lr_scale,
                                      size_of_gradient(*reference, name, std::sqrt(squares))));
    }
  }
  std::vector<TensorFacts> all;
  std::istringstream text(comm::broadcast_text(ranks, absl::StrJoin(lines, "\n"), 0));
  for (TensorFacts facts; text >> facts.name >> facts.elements >> facts.lr_scale >> facts.size;) all.push_back(facts);
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

double share(double part, double whole) { return part == 0 ? 0 : part / whole; }

/// |got - want|; infinite for a value that is not finite, which would lose every comparison.
double distance(double got, double want) {
  return std::isfinite(got) ? std::abs(got - want) : std::numeric_limits<double>::infinity();
}

/// Compares the tensors of a step. Rank 0 sends the reference in pieces, so that no other rank holds all of it.
class TensorComparison {
 public:
  TensorComparison(CheckedStep& step, const config::RunConfig& config, const Reference* reference)
      : step_(step),
        config_(config),
        reference_(reference),
        bounds_(bounds_of(config.run.dtype)),
        facts_(tensors_in_backward_order(step.mesh().control(), reference, config.model.norm.placement)) {
    for (const TensorFacts& facts : facts_) all_.push_back({.name = facts.name});
  }

  void gradients() {
    std::vector<double> held(facts_.size());
    for_each_piece(&TensorNumbers::gradient, [&](size_t i, std::span<const double> expected) {
      double squares = 0, largest = 0;
      for (const nn::ShardedRange& range : step_.engine().optimizer()->ranges()) {
        if (range.ref->tensor->name != facts_[i].name) continue;
        const std::vector<double> got = read(step_.engine().store().grads().flat_range(range.flat_begin, range.size));
        const std::vector<double> want = part_of(expected, *range.ref->tensor, range.first, range.size);
        for (size_t k = 0; k < got.size(); ++k) {
          const double off = distance(got[k], want[k]);
          squares += off * off;
          largest = std::max(largest, off);
        }
        if (range.ref->tensor->main_replica) held[i] += static_cast<double>(range.size);
      }
      all_[i].gradient = share(std::sqrt(squares), facts_[i].size);
      const double mean = facts_[i].size / std::sqrt(static_cast<double>(facts_[i].elements));
      all_[i].gradient_ulps = share(largest, bounds_.epsilon * std::max(largest_of(expected), mean));
      for_each_part(facts_[i].name, [&](const auto& ref) {
        parts_[facts_[i].name].push_back(part_of(expected, *ref.tensor, 0, ref.tensor->size()));
      });
    });
    comm::sum_all(ranks(), held);
    for (size_t i = 0; i < held.size(); ++i) all_[i].not_held = facts_[i].elements - static_cast<int64_t>(held[i]);
  }

  /// Call it after gradients().
  void weights() {
    for_each_piece(&TensorNumbers::weights, [&](size_t i, std::span<const double> expected) {
      double worst = 0, largest = 0;
      size_t part = 0;
      for_each_part(facts_[i].name, [&](const auto& ref) {
        const std::vector<double> got = read(nn::ParameterStore::of(step_.engine().store().values(), ref));
        const std::vector<double> want = part_of(expected, *ref.tensor, 0, ref.tensor->size());
        const std::vector<double>& gradient = parts_[facts_[i].name][part++];
        for (size_t k = 0; k < got.size(); ++k) {
          const double off = distance(got[k], want[k]);
          worst = std::max(worst, off / allowed(gradient[k], facts_[i], want[k]));
          largest = std::max(largest, off);
        }
      });
      all_[i].weight = worst;
      all_[i].weight_ulps = share(largest, bounds_.epsilon * largest_of(expected));
    });
  }

  /// The differences, of the rank where each is largest. (all ranks)
  std::vector<TensorDifference> result() {
    std::vector<double> values;
    for (const TensorDifference& t : all_)
      values.insert(values.end(), {t.gradient, t.gradient_ulps, t.weight, t.weight_ulps});
    comm::max_all(ranks(), values);
    for (size_t i = 0; i < all_.size(); ++i) {
      all_[i].gradient = values[4 * i];
      all_[i].gradient_ulps = values[4 * i + 1];
      all_[i].weight = values[4 * i + 2];
      all_[i].weight_ulps = values[4 * i + 3];
    }
    return std::move(all_);
  }

 private:
  comm::ControlPlane& ranks() { return step_.mesh().control(); }
  std::vector<double> read(const Tensor& tensor) const { return host_values(step_.engine().ctx(), tensor); }

  /// Calls `use(number of the tensor, its elements)` for each tensor, many of which come in one message.
  template <typename Use>
  void for_each_piece(std::vector<double> TensorNumbers::*what, const Use& use) {
    constexpr int64_t kMessage = int64_t{1} << 23;  // elements
    for (size_t begin = 0, end = 0; begin < facts_.size(); begin = end) {
      std::vector<double> piece;
      int64_t elements = 0;
      for (; end < facts_.size() && (end == begin || elements + facts_[end].elements <= kMessage); ++end) {
        elements += facts_[end].elements;
        if (reference_ == nullptr) continue;
        const std::vector<double>& values = reference_->tensors.at(facts_[end].name).*what;
        piece.insert(piece.end(), values.begin(), values.end());
      }
      piece.resize(static_cast<size_t>(elements));
      comm::broadcast_bytes(ranks(), std::as_writable_bytes(std::span(piece)), 0);
      int64_t at = 0;
      for (size_t i = begin; i < end; at += facts_[i++].elements)
        use(i, std::span<const double>(piece).subspan(at, facts_[i].elements));
    }
  }

  /// Calls `use(ref)` for each part of the tensor on this rank.
  template <typename Use>
  void for_each_part(const std::string& name, const Use& use) {
    for (const auto& ref : step_.engine().store().sharded_tensors())
      if (ref.tensor->name == name) use(ref);
  }

  /// How far an updated weight may lie from the reference if its gradient may be off by its bound.
  double allowed(double gradient, const TensorFacts& facts, double weight) const {
    const double lr = config_.optimizer.lr * facts.lr_scale, error = bounds_.relative * facts.size;
    const double clip = step_.result().clip_scale, x = clip * gradient;
    const double change = change_of_update(config_.optimizer.rule, x, clip * error + std::abs(x) * bounds_.relative);
    // Some roundings between gradient and update on either side, and those of the weight and its decay.
    return lr * change + bounds_.epsilon * (32 * lr + 8 * std::abs(weight));
  }

  CheckedStep& step_;
  const config::RunConfig& config_;
  const Reference* reference_;
  const Bounds bounds_;
  const std::vector<TensorFacts> facts_;
  std::vector<TensorDifference> all_;
  /// The gradients of the reference of what this rank holds: by tensor, then by part.
  std::map<std::string, std::vector<std::vector<double>>> parts_;
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
  compare(kGradientNorm, got.grad_norm, want.grad_norm, want.grad_norm);
  compare(kClipScale, got.clip_scale, want.clip_scale, want.clip_scale);
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

Origin origin_of(const LayoutDifference& difference, const Bounds& bounds) {
  Origin origin;
  std::vector<TensorDifference> weights;
  for (const TensorDifference& tensor : difference.tensors) {
    if (!differs(tensor, bounds)) continue;
    const bool gradient = !(tensor.gradient <= bounds.relative) || tensor.not_held != 0;
    (gradient ? origin.tensors : weights).push_back(tensor);
  }
  const bool norm = std::ranges::any_of(
      difference.numbers, [](const NumberDifference& n) { return n.name == kGradientNorm || n.name == kClipScale; });
  if (!origin.tensors.empty())
    origin.kind = Origin::Kind::kGradients;
  else if (norm)
    origin.kind = Origin::Kind::kNorm;
  if (origin.kind == Origin::Kind::kWeights)
    origin.tensors = std::move(weights);
  else
    origin.weights = std::ssize(weights);
  return origin;
}

LayoutDifference compare(CheckedStep& step, const config::RunConfig& config, const Reference* reference,
                         const Tamper& tamper) {
  LayoutDifference all;
  step.gradients();  // teaches the engine the uses of each weight: from now on sums over replicas begin during backward
  step.gradients();
  if (tamper) step.tamper(tamper);
  if (reference != nullptr)
    all.numbers = compare_numbers(step.result(), reference->result, bounds_of(config.run.dtype));
  TensorComparison tensors(step, config, reference);
  tensors.gradients();
  step.update();
  tensors.weights();
  all.tensors = tensors.result();
  return all;
}

}  // namespace ashlar::layout_check
