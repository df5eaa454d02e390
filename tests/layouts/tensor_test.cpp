// Tensor and sequence parallel slices of a model against the whole model on one rank: loss and every gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/base/strings.h"
#include "parallel/comm/host.h"
#include "parallel/mesh/mesh.h"
#include "parallel/zero/shared_tensors.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/compare.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

struct TensorCase {
  Axes axes;
  bool sequence_parallel;
  DType dtype;
};
std::ostream& operator<<(std::ostream& out, const TensorCase& c) {
  return out << c.axes.name << " " << c.dtype << (c.sequence_parallel ? ", sequence parallel" : "");
}

class TensorParallelGradients : public ::testing::TestWithParam<TensorCase> {};

TEST_P(TensorParallelGradients, AreThoseOfOneRank) {
  const auto& [axes, sequence_parallel, dtype] = GetParam();
  comm::Communicator& world = bootstrap().world();
  const model::ModelConfig config = config_of(axes);
  mesh::Mesh mesh(world, {{Axis::kTensor, world.size()}});
  const auto prepare = [&](TinyModel& m) {
    if (axes.documents) {
      m.doc_start().assign(kB * kT, 0);
      for (int64_t n = 0; n < kB * kT; ++n) m.doc_start()[n] = n % kT >= 5 ? 5 : 0;
    }
    Ctx ctx = m.ctx();
    ctx.recompute = axes.recompute;
    ctx.dropout = {.enabled = true, .seed = 11, .first_sample = 6, .sequence_length = kT};
    return ctx;
  };
  TinyModel whole(config, dtype, kB, kT);
  const double expected_loss = whole.loss_and_gradients(prepare(whole));

  TinyModel part(config, dtype, kB, kT, 1, 7,
                 {.group = &mesh.group(Axis::kTensor), .sequence_parallel = sequence_parallel});
  const double loss = part.loss_and_gradients(prepare(part));
  const auto ranges = nn::sharded_ranges(part.store(), nn::FlatRanges::whole(part.store()));
  zero::SharedTensors(part.store(), mesh).sum_gradients(part.ctx(), ranges);

  const double bound = dtype == DType::kFloat64 ? 1e-11 : 2e-5;
  EXPECT_NEAR(loss, expected_loss, bound * std::abs(expected_loss));
  const double all = norm_of(whole.host(whole.store().grads()));
  ASSERT_GT(all, 0.01);
  for (const auto& ref : part.store().sharded_tensors()) {
    const nn::ShardedTensor& tensor = *ref.tensor;
    const std::vector<double> reference = whole.gradient(tensor.name);
    EXPECT_EQ(part.values(tensor.name), slice_of(whole.values(tensor.name), tensor))
        << tensor.name << " starts otherwise";
    expect_close(tensor.name, part.gradient(tensor.name), slice_of(reference, tensor), norm_of(reference), all, bound);
  }
  int64_t elements = 0;
  for (const auto& ref : whole.store().sharded_tensors()) elements += ref.tensor->global_shape.size();
  expect_counted_once(mesh, elements, ranges);
  const std::vector<double> squares =
      zero::GlobalNorm(part.ctx(), part.store(), ranges, mesh).sums_of(part.ctx(), {.data = part.store().grads()});
  EXPECT_EQ(squares.size(), whole.store().sharded_tensors().size());
  const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  EXPECT_NEAR(norm, all, bound * all);
}

std::vector<TensorCase> tensor_cases() {
  std::vector<TensorCase> all;
  for (const Axes& axes : kAxes)
    for (const bool sequence_parallel : {false, true})
      for (const DType dtype : {DType::kFloat64, DType::kFloat32}) all.push_back({axes, sequence_parallel, dtype});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallelGradients, ::testing::ValuesIn(tensor_cases()), [](const auto& at) {
  return str_cat(at.param.axes.name, at.param.sequence_parallel ? "Sequence" : "", "_", name_of(at.param.dtype));
});

}  // namespace
}  // namespace ashlar::testing
