#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/pipeline/partition.h"
#include "parallel/pipeline/schedule.h"

namespace ashlar::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> sizes_of(const Partition& partition) {
  std::vector<int64_t> sizes;
  for (const model::StageRange& chunk : partition.chunks) sizes.push_back(chunk.last_layer - chunk.first_layer);
  return sizes;
}

/// A cut as the reference sees it, in whole numbers: exact, so that equal is equal.
struct Cut {
  int64_t max = 0, squares = 0;
  std::vector<int64_t> sizes;
  auto operator<=>(const Cut&) const = default;
};

/// The best of all ways to write the layers as chunks of at least `least` layers, tried one by one.
std::optional<Cut> best_cut(const std::vector<int64_t>& layers, int64_t embedding, int64_t head, size_t chunks,
                            int64_t least) {
  std::optional<Cut> best;
  std::vector<int64_t> sizes;
  const auto extend = [&](const auto& self, size_t used) -> void {
    if (sizes.size() == chunks) {
      if (used != layers.size()) return;
      Cut cut{.sizes = sizes};
      size_t at = 0;
      for (size_t k = 0; k < chunks; ++k) {
        int64_t cost = (k == 0 ? embedding : 0) + (k + 1 == chunks ? head : 0);
        for (int64_t i = 0; i < sizes[k]; ++i) cost += layers[at++];
        cut.max = std::max(cut.max, cost);
        cut.squares += cost * cost;
      }
      if (!best || cut < *best) best = cut;
      return;
    }
    for (auto n = least; static_cast<size_t>(n) <= layers.size() - used; ++n) {
      sizes.push_back(n);
      self(self, used + static_cast<size_t>(n));
      sizes.pop_back();
    }
  };
  extend(extend, 0);
  return best;
}

TEST(PipelinePartition, IsTheBestOfAllCuts) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int emptied = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const int64_t stages = draw(1, 4), virtual_stages = draw(1, 2), chunks = stages * virtual_stages;
    std::vector<int64_t> layers(static_cast<size_t>(draw(chunks, 9)));
    const int64_t costliest = trial % 3 == 0 ? 1 : 7;  // a third with equal layers, where ties abound
    for (int64_t& layer : layers) layer = draw(1, costliest);
    const int64_t embedding = draw(0, 6), head = draw(0, 12);
    const PartitionSpec spec{.layer_flops = {layers.begin(), layers.end()},
                             .embedding_flops = static_cast<double>(embedding),
                             .head_flops = static_cast<double>(head),
                             .stages = stages,
                             .virtual_stages = virtual_stages};
    const auto expected = best_cut(layers, embedding, head, static_cast<size_t>(chunks), 1);
    const Partition got = partition(spec);
    ASSERT_EQ(sizes_of(got), expected->sizes) << "trial " << trial;
    ASSERT_EQ(got.max_flops, static_cast<double>(expected->max));
    ASSERT_EQ(*std::max_element(got.flops.begin(), got.flops.end()), got.max_flops);

    PartitionSpec allowing = spec;
    allowing.allow_empty = true;
    // The reference may empty any chunk: none but the ends ever gains by it.
    const auto with_empty = best_cut(layers, embedding, head, static_cast<size_t>(chunks), 0);
    const Partition free = partition(allowing);
    ASSERT_EQ(free.max_flops, static_cast<double>(with_empty->max)) << "trial " << trial;
    if (with_empty->max == expected->max) {
      ASSERT_EQ(sizes_of(free), expected->sizes) << "trial " << trial;
    } else {
      ASSERT_EQ(free.flops.size(), static_cast<size_t>(chunks));
      ++emptied;
    }
  }
  EXPECT_GT(emptied, 30);
}

TEST(PipelinePartition, RangesFollowEachOtherAndEndsAreMarked) {
  const Partition got = partition({.layer_flops = std::vector<double>(10, 3.0), .stages = 2, .virtual_stages = 2});
  EXPECT_THAT(sizes_of(got), ElementsAre(2, 2, 3, 3));
  int64_t next = 0;
  for (size_t k = 0; k < got.chunks.size(); ++k) {
    EXPECT_EQ(got.chunks[k].first_layer, next);
    next = got.chunks[k].last_layer;
    EXPECT_EQ(got.chunks[k].embedding, k == 0);
    EXPECT_EQ(got.chunks[k].head, k == 3);
  }
  EXPECT_EQ(next, 10);
  EXPECT_THAT(got.flops, ElementsAre(6, 6, 9, 9));
}

TEST(PipelinePartition, OneChunkHoldsEverything) {
  const Partition got = partition({.layer_flops = {1, 2}, .embedding_flops = 4, .head_flops = 8});
  EXPECT_THAT(sizes_of(got), ElementsAre(2));
  EXPECT_TRUE(got.chunks[0].embedding && got.chunks[0].head);
  EXPECT_EQ(got.max_flops, 15);
}

TEST(PipelinePartition, HeavyHeadTakesFewerLayersOrNone) {
  PartitionSpec spec{.layer_flops = std::vector<double>(8, 1.0), .head_flops = 2, .stages = 4};
  EXPECT_THAT(sizes_of(partition(spec)), ElementsAre(2, 2, 3, 1));
  spec.head_flops = 30;
  EXPECT_THAT(sizes_of(partition(spec)), ElementsAre(2, 2, 3, 1));
  spec.allow_empty = true;
  EXPECT_THAT(sizes_of(partition(spec)), ElementsAre(2, 3, 3, 0));
}

TEST(PipelinePartition, RealCostsThatRoundDifferentlyStillTie) {
  // Sums of 0.1 depend on where they begin; the cut must be the one of equal layers.
  const PartitionSpec spec{.layer_flops = std::vector<double>(30, 0.1), .stages = 8};
  EXPECT_THAT(sizes_of(partition(spec)), ElementsAre(3, 3, 4, 4, 4, 4, 4, 4));
  PartitionSpec large = spec;
  large.layer_flops.assign(30, 1.1e17 / 3);
  EXPECT_EQ(sizes_of(partition(large)), sizes_of(partition(spec)));
}

std::string error_of(int64_t layers, int64_t stages, int64_t virtual_stages) {
  try {
    partition({.layer_flops = std::vector<double>(static_cast<size_t>(layers), 1.0),
               .stages = stages,
               .virtual_stages = virtual_stages,
               .allow_empty = true});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    return error.what();
  }
  return "no error";
}

TEST(PipelinePartition, FewerLayersThanChunksNamesWhatFits) {
  EXPECT_EQ(error_of(8, 4, 3),
            "[pipeline] mesh.pipeline = 4, mesh.virtual_stages = 3: expected at most model.n_layers = 8 chunks (each "
            "needs a layer), got 4 * 3 = 12; choose mesh.pipeline from 1 to 2 with mesh.virtual_stages = 3, or "
            "mesh.virtual_stages from 1 to 2 with mesh.pipeline = 4");
  EXPECT_THAT(error_of(2, 4, 1), HasSubstr("choose mesh.pipeline from 1 to 2 with mesh.virtual_stages = 1"));
  EXPECT_THAT(error_of(2, 4, 3), HasSubstr("choose mesh.virtual_stages = 1 with mesh.pipeline from 1 to 2"));
  EXPECT_THAT(error_of(2, 0, 1), HasSubstr("at least 1, got 0 and 1"));
  EXPECT_EQ(error_of(12, 4, 3), "no error");
}

TEST(PipelinePartition, RefusesCostsThatAreNone) {
  EXPECT_THROW(partition({.layer_flops = {1, 0}, .stages = 2}), Bug);
  EXPECT_THROW(partition({.layer_flops = {1, 1}, .head_flops = -1, .stages = 2}), Bug);
  EXPECT_THROW(partition({.layer_flops = {}}), Bug);
}

}  // namespace
}  // namespace ashlar::pipeline
