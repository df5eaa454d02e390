#include "tests/support/routed_backend.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ashlar::testing {
namespace {

/// The difference between the k-th largest value and the next one; infinite if there is none.
double gap_behind(std::vector<double> values, int64_t k) {
  std::ranges::sort(values, std::greater());
  if (k >= std::ssize(values)) return std::numeric_limits<double>::infinity();
  return values[static_cast<size_t>(k - 1)] - values[static_cast<size_t>(k)];
}

/// The gap of one row, whose selection values are `values` (RouterRule).
double gap_of_row(const std::vector<double>& values, int64_t top_k, const RouterRule& rule) {
  if (rule.groups == 1) return gap_behind(values, top_k);
  const int64_t each = std::ssize(values) / rule.groups;
  const int64_t counted = rule.group_score == GroupScore::kTopTwo ? std::min<int64_t>(2, each) : 1;
  std::vector<double> of_groups;
  for (int64_t g = 0; g < rule.groups; ++g) {
    std::vector<double> own(values.begin() + g * each, values.begin() + (g + 1) * each);
    std::ranges::sort(own, std::greater());
    double sum = 0;
    for (int64_t i = 0; i < counted; ++i) sum += own[static_cast<size_t>(i)];
    of_groups.push_back(sum);
  }
  std::vector<double> sorted = of_groups;
  std::ranges::sort(sorted, std::greater());
  const double last = sorted[static_cast<size_t>(rule.top_groups - 1)];
  std::vector<double> taking_part;
  for (int64_t e = 0; e < std::ssize(values); ++e)
    if (of_groups[static_cast<size_t>(e / each)] >= last) taking_part.push_back(values[static_cast<size_t>(e)]);
  return std::min(gap_behind(of_groups, rule.top_groups), gap_behind(taking_part, top_k));
}

/// Replaces logits by scores.
void score(std::vector<double>& logits, RouterScore score) {
  double sum = 0;
  const double largest = *std::ranges::max_element(logits);
  for (const double z : logits) sum += std::exp(z - largest);
  for (double& z : logits) z = score == RouterScore::kSoftmax ? std::exp(z - largest) / sum : 1 / (1 + std::exp(-z));
}

}  // namespace

void RoutedBackend::force(Choices choices) {
  forced_ = std::move(choices);
  forces_ = true;
  next_ = 0;
}

std::vector<double> RoutedBackend::host_values(const ConstView& view, Stream& stream) {
  std::vector<double> values(static_cast<size_t>(view.size()));
  if (view.dtype == DType::kFloat64) {
    inner_.read(view, values.data(), stream);
  } else {
    std::vector<float> narrow(values.size());
    inner_.read(view, narrow.data(), stream);
    std::ranges::copy(narrow, values.begin());
  }
  return values;
}

void RoutedBackend::choose(const RouteForward& args, Stream& stream) {
  RouteForward call = args;
  const int64_t N = args.choices.rows, E = args.logits.cols, k = args.choices.cols;
  if (forces_) {
    ASHLAR_CHECK(next_ < std::ssize(forced_), "only ", forced_.size(), " calls have choices to be forced");
    const std::vector<int32_t>& choices = forced_[static_cast<size_t>(next_++)];
    ASHLAR_CHECK(std::ssize(choices) == N * k, choices.size(), " choices to be forced, not ", N, " x ", k);
    given_ = Tensor::allocate(inner_.allocator(MemoryKind::kActivations), DType::kInt32, {N, k});
    inner_.write(choices.data(), given_.mut_view(), stream);
    call.forced = given_.view();
  }
  inner_.route_forward(call, stream);

  taken_.emplace_back(static_cast<size_t>(N * k));
  inner_.read(args.choices, taken_.back().data(), stream);
  const std::vector<double> logits = host_values(args.logits, stream);
  const std::vector<double> bias =
      args.selection_bias ? host_values(args.selection_bias, stream) : std::vector<double>();
  const bool by_score = args.selection_bias || (args.rule.groups > 1 && args.rule.group_score == GroupScore::kTopTwo);
  for (int64_t n = 0; n < N; ++n) {
    std::vector<double> values(logits.begin() + n * E, logits.begin() + (n + 1) * E);
    if (by_score) score(values, args.rule.score);
    for (size_t e = 0; e < bias.size(); ++e) values[e] += bias[e];
    least_gap_ = std::min(least_gap_, gap_of_row(values, k, args.rule));
  }
}

}  // namespace ashlar::testing
