#include "tests/layouts/reference_numbers.h"

#include <algorithm>

#include "parallel/model/experts.h"

namespace ashlar::testing {
namespace {

/// The buffers of all layers after an update, by the rule: a layout and one rank may leave out the same layers.
Tensors moved_buffers(const LayoutCase& c, Tensors buffers, const std::vector<double>& counts) {
  const auto rounded = [&](double x) { return c.dtype == DType::kFloat64 ? x : double{static_cast<float>(x)}; };
  const model::MoeConfig& moe = c.config.moe;
  for (int64_t layer = 0; layer < c.config.n_layers; ++layer) {
    if (!c.config.has_experts(layer)) continue;
    const auto own = std::span(counts).subspan(c.config.expert_layers_before(layer) * moe.experts, moe.experts);
    const double mean = std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(moe.experts);
    const std::string name = str_cat("blocks.", layer, ".moe.");
    if (const auto bias = buffers.find(str_cat(name, model::kSelectionBiasName)); bias != buffers.end()) {
      for (size_t e = 0; e < own.size(); ++e)
        bias->second[e] = rounded(bias->second[e] + rounded(moe.bias_rate) * ((own[e] < mean) - (own[e] > mean)));
    }
    if (const auto previous = buffers.find(str_cat(name, model::kPreviousCountsName)); previous != buffers.end())
      std::ranges::copy(own, previous->second.begin());
  }
  return buffers;
}

}  // namespace

/// Gives the buffers of a model values that change choices.
void fill_buffers(const Ctx& ctx, const nn::ParameterStore& store) {
  for (const auto& buffer : store.buffers()) {
    std::vector<double> values;
    for (int64_t e = 0; e < buffer->values.size(); ++e)
      values.push_back(buffer->use == nn::BufferUse::kModel ? 0.0625 * static_cast<double>(7 * e % 5 - 2)
                                                            : static_cast<double>(3 + 5 * e % 4));
    const std::vector<float> narrow(values.begin(), values.end());
    const bool wide = buffer->values.dtype() == DType::kFloat64;
    ctx.backend.write(wide ? static_cast<const void*>(values.data()) : narrow.data(), buffer->values.mut_view(),
                      ctx.stream);
  }
}

Numbers numbers_of_one_rank(const LayoutCase& c, const MicroBatches& batches) {
  WholeModel one(c, batches);
  Numbers n;
  n.first = one.run(kStep, true, true);
  n.norm = one.gradient_norm();
  n.gradients = one.gradients();
  n.expert_counts = one.expert_counts();
  n.choices.push_back(one.routes().take_choices());
  n.buffers = moved_buffers(c, one.buffers(), n.expert_counts);
  one.update(kStep, c.clip * n.norm / n.norm);  // rounded as the engine does it
  n.updated = one.values();
  n.after = one.run(kStep, true, false);
  n.gradients_after = one.gradients();
  n.choices.push_back(one.routes().take_choices());
  for (int64_t step = kStep + 1; step <= kStep + c.further_steps; ++step) {
    n.further.push_back(one.run(step, true, true));
    n.choices.push_back(one.routes().take_choices());
    // engine.clip is what the first step's norm made it; a rank alone clips to the same.
    const double norm = one.gradient_norm();
    one.update(step, norm > c.clip * n.norm ? c.clip * n.norm / norm : 1.0);
  }
  n.least_gap = one.routes().least_gap();
  return n;
}

}  // namespace ashlar::testing
