// The mesh as pure functions: no rank is started.
#include "parallel/mesh/mesh.h"
#include "parallel/tensor/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace ashlar::mesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Mesh, TensorIsInnermostPipelineOutermost) {
  const MeshShape shape{.pipeline = 2, .data = 3, .tensor = 4};
  EXPECT_EQ(shape.ranks(), 24);
  EXPECT_EQ(coordinates_of(shape, 0), (Coordinates{0, 0, 0}));
  EXPECT_EQ(coordinates_of(shape, 1), (Coordinates{.pipeline = 0, .data = 0, .tensor = 1}));
  EXPECT_EQ(coordinates_of(shape, 4), (Coordinates{.pipeline = 0, .data = 1, .tensor = 0}));
  EXPECT_EQ(coordinates_of(shape, 12), (Coordinates{.pipeline = 1, .data = 0, .tensor = 0}));
  EXPECT_EQ(coordinates_of(shape, 23), (Coordinates{.pipeline = 1, .data = 2, .tensor = 3}));
}

TEST(Mesh, RanksAndCoordinatesAreInverse) {
  for (int64_t pipeline = 1; pipeline <= 4; ++pipeline) {
    for (int64_t data = 1; data <= 4; ++data) {
      for (int64_t tensor = 1; tensor <= 4; ++tensor) {
        const MeshShape shape{.pipeline = pipeline, .data = data, .tensor = tensor};
        int64_t next = 0;
        for (int64_t p = 0; p < pipeline; ++p) {
          for (int64_t d = 0; d < data; ++d) {
            for (int64_t t = 0; t < tensor; ++t, ++next) {
              EXPECT_EQ(rank_of(shape, {p, d, t}), next);
              EXPECT_EQ(coordinates_of(shape, next), (Coordinates{p, d, t}));
            }
          }
        }
        EXPECT_THROW(coordinates_of(shape, next), Bug);
        EXPECT_THROW(rank_of(shape, {0, data, 0}), Bug);
      }
    }
  }
}

TEST(Mesh, TensorSizesThatDivideTheHeads) {
  EXPECT_THAT(possible_tensor_sizes({.n_heads = 8, .n_kv_heads = 8}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(possible_tensor_sizes({.n_heads = 12, .n_kv_heads = 1}), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(possible_tensor_sizes({.n_heads = 24, .n_kv_heads = 6}), ElementsAre(1, 2, 3, 6, 12, 24));
  EXPECT_THAT(possible_tensor_sizes({.n_heads = 71, .n_kv_heads = 1}), ElementsAre(1, 71));
}

TEST(Mesh, KvHeadsAreSharedWhenTheyAreFewer) {
  EXPECT_EQ(kv_sharing_ranks(4, 8), 1);
  EXPECT_EQ(kv_sharing_ranks(4, 4), 1);
  EXPECT_EQ(kv_sharing_ranks(8, 2), 4);
  EXPECT_EQ(kv_sharing_ranks(1, 1), 1);
  EXPECT_THROW(kv_sharing_ranks(4, 6), Bug);
}

TEST(Mesh, SlicingProblemsNameKeysValuesAndWhatWouldDo) {
  model::ModelConfig c;
  c.n_heads = 8;
  c.n_kv_heads = 2;
  c.d_ff = 40;
  c.vocab_size = 37;
  c.vocab_pad_to = 8;
  for (const int64_t size : {1, 2, 4, 8}) EXPECT_THAT(tensor::slicing_problems(c, size), IsEmpty()) << size;
  EXPECT_THAT(tensor::slicing_problems(c, 5),
              ElementsAre(AllOf(StartsWith("mesh.tensor = 5: expected"), HasSubstr("model.n_heads = 8"),
                                HasSubstr("model.n_kv_heads = 2"), HasSubstr("from 1, 2, 4, 8"))));
  c.d_ff = 42;
  c.vocab_pad_to = 6;
  EXPECT_THAT(tensor::slicing_problems(c, 4),
              ElementsAre(AllOf(HasSubstr("model.d_ff = 42"), HasSubstr("model.d_ff = 44")),
                          AllOf(HasSubstr("42 rows"), HasSubstr("vocab.pad_to = 12"))));
}

}  // namespace
}  // namespace ashlar::mesh
