#include "tests/layouts/reference_numbers.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::testing {

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

namespace {

Numbers compute(const LayoutCase& c, const MicroBatches& batches) {
  WholeModel one(c, batches);
  Numbers n;
  n.first = one.run(kStep, true, true);
  n.norm = one.gradient_norm();
  n.gradients = one.gradients();
  n.expert_counts = one.expert_counts();
  one.update(kStep, c.clip * n.norm / n.norm);  // rounded as the engine does it
  n.updated = one.values();
  n.buffers = one.buffers();
  n.after = one.run(kStep, true, false);
  n.gradients_after = one.gradients();
  for (int64_t step = kStep + 1; step <= kStep + c.further_steps; ++step) {
    n.further.push_back(one.run(step, true, true));
    // engine.clip is what the first step's norm made it; a rank alone clips to the same.
    const double norm = one.gradient_norm();
    one.update(step, norm > c.clip * n.norm ? c.clip * n.norm / norm : 1.0);
  }
  return n;
}

/// Calls visit(bytes) for each part of fixed size of `n`, in order; `visit` may fill it. Strings and vectors have their
/// sizes visited first and are resized to them.
template <typename Visit>
void visit_parts(Numbers& n, const Visit& visit) {
  const auto value = [&](auto& x) { visit(std::as_writable_bytes(std::span(&x, 1))); };
  const auto list = [&](auto& x) {
    size_t size = x.size();
    value(size);
    x.resize(size);
    visit(std::as_writable_bytes(std::span(x)));
  };
  const auto tensors = [&](Tensors& all) {
    std::vector<std::pair<std::string, std::vector<double>>> pairs(all.begin(), all.end());
    size_t size = pairs.size();
    value(size);
    pairs.resize(size);
    for (auto& [name, values] : pairs) {
      list(name);
      list(values);
    }
    all = Tensors(pairs.begin(), pairs.end());
  };
  value(n.first);
  value(n.norm);
  tensors(n.gradients);
  list(n.expert_counts);
  tensors(n.updated);
  tensors(n.buffers);
  value(n.after);
  tensors(n.gradients_after);
  list(n.further);
}

}  // namespace

Numbers numbers_of_one_rank(comm::ControlPlane& ranks, const LayoutCase& c, const MicroBatches& batches) {
  Numbers n;
  std::string text;
  comm::try_on_first_rank(ranks, [&] {
    n = compute(c, batches);
    visit_parts(
        n, [&](std::span<std::byte> bytes) { text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); });
  });
  text = comm::broadcast_text(ranks, text, 0);
  size_t at = 0;
  visit_parts(n, [&](std::span<std::byte> bytes) {
    std::memcpy(bytes.data(), text.data() + at, bytes.size());
    at += bytes.size();
  });
  return n;
}

}  // namespace ashlar::testing
