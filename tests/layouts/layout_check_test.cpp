// The comparison behind `ashlar check-layout`: legal layouts are equal, and an error planted in the gradients of one
// rank is found, by the name of its tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "launch/layout_check/backward_order.h"
#include "launch/layout_check/comparison.h"
#include "launch/training/run_device.h"
#include "parallel/comm/host.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

using layout_check::LayoutDifference;
using layout_check::TensorDifference;

constexpr int64_t kMicroBatchesOfStep = 16;

config::RunConfig step_config(const Axes& axes, const mesh::MeshShape& shape, DType dtype) {
  config::RunConfig c;
  c.model = config_of(axes);
  c.model.n_layers = std::max(4, bootstrap().world().size());  // a layer for each stage
  c.run.dtype = dtype;
  c.run.threads = 1;
  c.run.seed = 5;
  c.train.sequence_length = kT;
  c.train.micro_batch = 2;
  c.train.recompute = axes.recompute;
  c.data.document_mask = axes.documents;
  c.optimizer.lr = 1e-3;
  c.optimizer.clip = 0.1;
  c.mesh = {.tensor = shape[Axis::kTensor],
            .pipeline = shape[Axis::kPipeline],
            .data = shape.size(kSampleAxes),
            .expert = shape[Axis::kExpert]};
  return c;
}

/// Steps on the first ranks of the world against one rank.
class LayoutCheck : public ::testing::Test {
 protected:
  LayoutDifference check(const Axes& axes, const mesh::MeshShape& shape, DType dtype,
                         const layout_check::Tamper& tamper = {}) {
    training::RunDevice device({.bootstrap = bootstrap(), .run = {.threads = 1}, .log = log_, .make_backend = {}});
    device.connect();
    const auto first = [&](int64_t count) {
      return device.ranks().split({.color = bootstrap().world().rank() < count ? 0 : -1, .name = "layout"});
    };
    const auto alone = first(1);
    std::optional<layout_check::Reference> reference;
    if (alone)
      reference = layout_check::reference_numbers(step_config(axes, {}, dtype), device, *alone, kMicroBatchesOfStep);
    const auto ranks = first(shape.ranks());
    if (!ranks) return {};
    const config::RunConfig config = step_config(axes, shape, dtype);
    layout_check::CheckedStep step(config, device, *ranks, kMicroBatchesOfStep);
    return layout_check::compare(step, config, reference ? &*reference : nullptr, tamper);
  }

  /// The tensors that differ, those that backward meets first.
  static std::vector<std::string> wrong(const LayoutDifference& difference, DType dtype) {
    std::vector<std::string> names;
    for (const TensorDifference& tensor : difference.tensors)
      if (layout_check::differs(tensor, layout_check::bounds_of(dtype))) names.push_back(tensor.name);
    return names;
  }

  Log log_{[](std::string_view) {}};
};

TEST(ShapesOfAMesh, AreAllThatHaveSoManyRanks) {
  for (const int64_t ranks : {1, 2, 8}) {
    const auto names = [](const std::vector<mesh::MeshShape>& shapes) {
      std::vector<std::string> all;
      for (const mesh::MeshShape& shape : shapes) all.push_back(name_of(shape));
      return all;
    };
    EXPECT_THAT(names(mesh::shapes_of(ranks, false)), ::testing::UnorderedElementsAreArray(names(meshes_of(ranks))));
  }
  // Of 6 ranks, for tensor 1, 2, 3 and 6: each number of data ranks as often as it has divisors.
  EXPECT_EQ(mesh::shapes_of(6, true).size(), 9U + 3U + 3U + 1U);
}

// Models rotate over the meshes, on eight ranks a quarter of them; the long form takes each model with each mesh.
TEST_F(LayoutCheck, LegalLayoutsAreEqual) {
  const std::vector<mesh::MeshShape> shapes = meshes_of(bootstrap().world().size());
  size_t number = 0;
  for (const Axes& axes : kAxes) {
    ++number;
    for (size_t at = 0; at < shapes.size(); ++at) {
      if (!long_form() && at != number % shapes.size()) continue;
      if (!long_form() && bootstrap().world().size() > 4 && number % 4 != 0) continue;
      const DType dtype = (number + at) % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
      SCOPED_TRACE(str_cat(axes.name, ", ", name_of(shapes[at]), ", ", name_of(dtype)));
      const LayoutDifference difference = check(axes, shapes[at], dtype);
      EXPECT_TRUE(difference.equal(layout_check::bounds_of(dtype)))
          << ::testing::PrintToString(wrong(difference, dtype)) << difference.numbers.size() << " numbers";
      if (bootstrap().world().rank() != 0) continue;
      EXPECT_GT(difference.tensors.size(), 20U);
    }
  }
}

TEST_F(LayoutCheck, AGradientOfOneRankThatIsOffIsFoundByItsTensor) {
  const int64_t ranks = bootstrap().world().size();
  if (ranks == 1) GTEST_SKIP() << "a layout of several ranks";
  constexpr std::string_view kName = "blocks.2.ffn.up.weight";
  const auto scale_it = [&](training::Engine& engine) {
    if (engine.mesh().control().rank() != ranks - 1) return;
    for (const nn::ShardedRange& range : engine.optimizer()->ranges()) {
      if (range.ref->tensor->name != kName) continue;
      const Tensor part = engine.store().grads().flat_range(range.flat_begin, range.size);
      std::vector<double> values = layout_check::host_values(engine.ctx(), part);
      for (double& x : values) x *= 1 + 1e-9;
      engine.ctx().backend.write(values.data(), part.mut_view(), engine.ctx().stream);
    }
  };
  const LayoutDifference difference = check(kAxes[0], {{Axis::kTensor, ranks}}, DType::kFloat64, scale_it);
  EXPECT_THAT(wrong(difference, DType::kFloat64), ::testing::ElementsAre(kName));
  EXPECT_TRUE(difference.numbers.empty()) << "the norm was taken before";
  // Those nearest to the loss come first.
  EXPECT_EQ(difference.tensors.front().name, "head.weight");
  EXPECT_TRUE(difference.tensors.back().name.starts_with("embed."));
}

TEST(BackwardOrder, IsFromTheLossToTheEmbeddings) {
  using enum model::NormPlacement;
  std::vector<std::string> names = {"blocks.10.norm1.weight",
                                    "blocks.10.attn.q.weight",
                                    "blocks.10.attn.out.weight",
                                    "blocks.10.norm2.weight",
                                    "blocks.10.ffn.gate.weight",
                                    "blocks.10.ffn.down.weight",
                                    "blocks.10.out_scalar",
                                    "blocks.9.moe.router.weight",
                                    "embed.tokens.weight",
                                    "norm_final.weight",
                                    "head.weight",
                                    "blocks.9.norm2.weight",
                                    "blocks.9.moe.experts.0.up.weight",
                                    "blocks.9.moe.experts.1.down.weight"};
  layout_check::sort_as_backward_meets(names, kPre);
  EXPECT_THAT(names,
              ::testing::ElementsAre("head.weight", "norm_final.weight", "blocks.10.out_scalar",
                                     "blocks.10.ffn.down.weight", "blocks.10.ffn.gate.weight", "blocks.10.norm2.weight",
                                     "blocks.10.attn.out.weight", "blocks.10.attn.q.weight", "blocks.10.norm1.weight",
                                     "blocks.9.moe.experts.1.down.weight", "blocks.9.moe.experts.0.up.weight",
                                     "blocks.9.moe.router.weight", "blocks.9.norm2.weight", "embed.tokens.weight"));

  names = {"blocks.0.norm1.weight", "blocks.0.attn.out.weight", "blocks.0.norm2.weight", "blocks.0.ffn.up.weight"};
  layout_check::sort_as_backward_meets(names, kPost);
  EXPECT_THAT(names, ::testing::ElementsAre("blocks.0.norm2.weight", "blocks.0.ffn.up.weight", "blocks.0.norm1.weight",
                                            "blocks.0.attn.out.weight"));

  names = {"blocks.0.norm1_out.weight", "blocks.0.attn.out.weight", "blocks.0.norm2_out.weight",
           "blocks.0.ffn.down.weight"};
  layout_check::sort_as_backward_meets(names, kOutput);
  EXPECT_THAT(names, ::testing::ElementsAre("blocks.0.norm2_out.weight", "blocks.0.ffn.down.weight",
                                            "blocks.0.norm1_out.weight", "blocks.0.attn.out.weight"));
}

// What follows from a wrong gradient (norm, clip scale, all weights) does not hide where it is.
TEST(OriginOfADifference, IsWhatNothingElseExplains) {
  using Kind = layout_check::Origin::Kind;
  const layout_check::Bounds bounds;
  const TensorDifference equal{.name = "a", .gradient = 1e-13, .weight = 0.1};
  const TensorDifference moved{.name = "b", .gradient = 1e-13, .weight = 1e6};
  const TensorDifference wrong{.name = "c", .gradient = 0.5, .weight = 1e6};
  const TensorDifference nowhere{.name = "d", .not_held = 3, .weight = 1e6};
  const layout_check::NumberDifference loss{.name = "loss"}, norm{.name = "gradient norm"}, clip{.name = "clip scale"};
  const auto origin = [&](const LayoutDifference& difference) { return origin_of(difference, bounds); };

  const layout_check::Origin gradients = origin({{norm, clip}, {equal, moved, wrong, moved, nowhere}});
  EXPECT_EQ(gradients.kind, Kind::kGradients);
  EXPECT_THAT(gradients.tensors, ::testing::ElementsAre(wrong, nowhere));
  EXPECT_EQ(gradients.weights, 2);

  for (const layout_check::NumberDifference& number : {norm, clip}) {
    const layout_check::Origin of_norm = origin({{number}, {moved, equal, moved}});
    EXPECT_EQ(of_norm.kind, Kind::kNorm) << number.name;
    EXPECT_THAT(of_norm.tensors, ::testing::IsEmpty()) << number.name;
    EXPECT_EQ(of_norm.weights, 2) << number.name;
  }

  for (const std::vector<layout_check::NumberDifference>& numbers : {{}, std::vector{loss}}) {
    const layout_check::Origin weights = origin({numbers, {equal, moved}});
    EXPECT_EQ(weights.kind, Kind::kWeights);
    EXPECT_THAT(weights.tensors, ::testing::ElementsAre(moved));
    EXPECT_EQ(weights.weights, 0);
  }
}

TEST_F(LayoutCheck, AnUpdateThatIsOffIsFound) {
  const int64_t ranks = bootstrap().world().size();
  if (ranks == 1) GTEST_SKIP() << "a layout of several ranks";
  // A sign turned after the comparison of gradients would move the weight the other way; here the first rank's weights
  // differ from the start, so that only the weights differ.
  const auto move = [&](training::Engine& engine) {
    if (engine.mesh().control().rank() != 0) return;
    const nn::ShardedRange& range = engine.optimizer()->ranges().front();
    const Tensor master = engine.optimizer()->master().of(range);
    std::vector<double> values = layout_check::host_values(engine.ctx(), master);
    values[0] += 1e-6;
    engine.ctx().backend.write(values.data(), master.mut_view(), engine.ctx().stream);
  };
  const LayoutDifference difference = check(kAxes[0], {{Axis::kReplica, ranks}}, DType::kFloat64, move);
  EXPECT_EQ(wrong(difference, DType::kFloat64).size(), 1U);
  for (const TensorDifference& tensor : difference.tensors) EXPECT_LT(tensor.gradient, 1e-13) << tensor.name;
}

}  // namespace
}  // namespace ashlar::testing
