#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"
#include "tests/launch/published_steps.h"

namespace ashlar::plan {
namespace {

using ashlar::testing::PublishedStep;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

struct Compared {
  PublishedStep step;
  double predicted = 0, slow = 0, fast = 0;  // utilization, and that of the interval's ends
  double error() const { return predicted / step.utilization - 1; }
};

Compared compared(const PublishedStep& step, double kernels) {
  static const Device kH100 = device_named("h100-sxm");
  const StepTime time = step_time(config_of(step), kH100, system_of(step, kernels));
  const auto of = [&](double seconds) { return ashlar::testing::utilization(step, time, seconds); };
  return {.step = step, .predicted = of(time.seconds), .slow = of(time.high), .fast = of(time.low)};
}

/// The one fitted constant, System::kernels: on nanotron's steps on one machine alone the mean error is 0 with it.
double fitted_kernels() {
  std::vector<PublishedStep> one_machine = ashlar::testing::nanotron_steps();
  std::erase_if(one_machine, [](const PublishedStep& step) { return step.gpus() != 8; });
  EXPECT_EQ(one_machine.size(), 3U);
  double below = 0.5, above = 3;
  for (int i = 0; i < 40; ++i) {
    const double middle = (below + above) / 2;
    double sum = 0;
    for (const PublishedStep& step : one_machine) sum += compared(step, middle).error();
    (sum > 0 ? below : above) = middle;
  }
  return below;
}

double median_error(const std::vector<Compared>& all) {
  std::vector<double> errors;
  for (const Compared& c : all) errors.push_back(std::abs(c.error()));
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

/// Share of the pairs of two steps of one model (`same_model`) or of any two whose utilizations are in the right order.
double ordered_pairs(const std::vector<Compared>& all, bool same_model) {
  double right = 0, pairs = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (same_model && all[i].step.model != all[j].step.model) continue;
      ++pairs;
      right += (all[i].predicted > all[j].predicted) == (all[i].step.utilization > all[j].step.utilization) ? 1 : 0;
    }
  }
  return right / pairs;
}

std::vector<Compared> all_of(const std::vector<PublishedStep>& steps, double kernels) {
  std::vector<Compared> all;
  for (const PublishedStep& step : steps) all.push_back(compared(step, kernels));
  return all;
}

/// ASHLAR_PLAN_MD prints the rows of RESULTS.md.
void print(const std::vector<Compared>& all) {
  if (std::getenv("ASHLAR_PLAN_MD") == nullptr) return;
  for (const auto& [step, predicted, slow, fast] : all) {
    std::cout << absl::StrFormat("| %s | %d | %d / %d / %d | %d | %.1f | %.1f (%.1f to %.1f) | %+.0f%% |\n",
                                 step.model->name, step.gpus(), step.tensor, step.pipeline, step.data, step.micro_batch,
                                 step.utilization, predicted, slow, fast, 100 * (predicted / step.utilization - 1));
  }
}

TEST(PlanPublished, OneConstantOfOneMachinePredictsTheOtherSteps) {
  const double kernels = fitted_kernels();
  const std::vector<Compared> megatron = all_of(ashlar::testing::megatron_steps(), kernels);
  const std::vector<Compared> nanotron = all_of(ashlar::testing::nanotron_steps(), kernels);
  ASSERT_EQ(megatron.size(), 9U);
  ASSERT_EQ(nanotron.size(), 26U);
  print(megatron);
  print(nanotron);
  std::vector<Compared> all = megatron;
  all.insert(all.end(), nanotron.begin(), nanotron.end());
  std::vector<Compared> few = nanotron;
  std::erase_if(few, [](const Compared& c) { return c.step.gpus() > 64; });
  const double inside =
      static_cast<double>(std::ranges::count_if(
          all, [](const Compared& c) { return c.slow <= c.step.utilization && c.step.utilization <= c.fast; })) /
      static_cast<double>(all.size());
  if (std::getenv("ASHLAR_PLAN_MD") != nullptr)
    std::cout << absl::StrFormat(
        "kernels %.3f; medians: Megatron %.3f, nanotron %.3f, nanotron up to 64 GPUs %.3f, all %.3f; pairs: Megatron "
        "%.2f, nanotron %.2f, up to 64 GPUs %.2f; inside %.2f\n",
        kernels, median_error(megatron), median_error(nanotron), median_error(few), median_error(all),
        ordered_pairs(megatron, false), ordered_pairs(nanotron, true), ordered_pairs(few, true), inside);

  EXPECT_THAT(kernels, AllOf(Ge(1.15), Le(1.35)));
  EXPECT_THAT(median_error(megatron), Le(0.15));
  EXPECT_THAT(median_error(nanotron), Le(0.15));
  // Beyond eight machines nanotron's steps wait for what no figure of one machine shows (RESULTS.md).
  EXPECT_THAT(median_error(few), Le(0.1));
  EXPECT_THAT(ordered_pairs(few, true), Ge(0.8));
  EXPECT_THAT(ordered_pairs(nanotron, true), Ge(0.6));
}

}  // namespace
}  // namespace ashlar::plan
