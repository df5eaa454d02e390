#include "parallel/model/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

ModelConfig heads(int64_t n_heads, int64_t n_kv_heads) {
  ModelConfig c;
  c.n_heads = n_heads;
  c.n_kv_heads = n_kv_heads;
  return c;
}

TEST(Slices, TensorSizesThatDivideTheHeads) {
  EXPECT_THAT(possible_tensor_sizes(heads(8, 8)), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(possible_tensor_sizes(heads(12, 1)), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(possible_tensor_sizes(heads(24, 6)), ElementsAre(1, 2, 3, 6, 12, 24));
  EXPECT_THAT(possible_tensor_sizes(heads(71, 1)), ElementsAre(1, 71));
}

TEST(Slices, KvHeadsAreSharedWhenTheyAreFewer) {
  EXPECT_EQ(slices_of(heads(8, 8), 4, 1).kv_axes, nn::kTensorSharded);
  EXPECT_EQ(slices_of(heads(8, 4), 4, 1).kv_axes, nn::kTensorSharded);
  const Slices shared = slices_of(heads(8, 2), 8, 5);
  EXPECT_EQ(shared.kv_heads.begin, 1);
  EXPECT_TRUE(shared.kv_axes.sharded_over.has(Axis::kTensor));
  EXPECT_TRUE(shared.kv_axes.replicated_over.has(Axis::kTensor));
  EXPECT_TRUE(shared.kv_axes.grad_summed_over.has(Axis::kTensor));
  EXPECT_THROW(slices_of(heads(8, 6), 4, 0), Bug);
}

// Gemma 4 31B: 16 KV heads, 4 where attention is full.
TEST(Slices, OfLayersOfTwoKinds) {
  ModelConfig c = heads(32, 16);
  c.n_layers = 2;
  c.attn.window_cycle = {8, -1};
  c.attn.global_n_kv_heads = 4;
  c.d_ff = 64;
  c.vocab_size = 64;
  // On 32 ranks two share a head of the one kind and eight one of the other.
  EXPECT_THAT(possible_tensor_sizes(c), ElementsAre(1, 2, 4, 8, 16, 32));
  const Slices windowed = slices_of(c, 8, 3, 0), full = slices_of(c, 8, 3, 1);
  EXPECT_EQ(windowed.kv_heads.begin, 6);
  EXPECT_EQ(windowed.kv_heads.size, 2);
  EXPECT_EQ(windowed.kv_axes, nn::kTensorSharded);
  EXPECT_EQ(full.kv_heads.begin, 1);
  EXPECT_EQ(full.kv_heads.size, 1);
  EXPECT_EQ(full.kv_heads.global, 4);
  EXPECT_TRUE(full.kv_axes.replicated_over.has(Axis::kTensor));
  EXPECT_THAT(slicing_problems(c, 3), ::testing::Contains(AllOf(StartsWith("mesh.tensor = 3: expected"),
                                                                HasSubstr("attn.global_n_kv_heads = 4"),
                                                                HasSubstr("from 1, 2, 4, 8, 16, 32"))));
  c.attn.global_n_kv_heads = 6;
  EXPECT_THAT(possible_tensor_sizes(c), ElementsAre(1, 2));
}

TEST(Slices, SlicingProblemsNameKeysValuesAndWhatWouldDo) {
  ModelConfig c;
  c.n_heads = 8;
  c.n_kv_heads = 2;
  c.d_ff = 40;
  c.vocab_size = 37;
  c.vocab_pad_to = 8;
  for (const int64_t size : {1, 2, 4, 8}) EXPECT_THAT(slicing_problems(c, size), IsEmpty()) << size;
  EXPECT_THAT(slicing_problems(c, 5),
              ElementsAre(AllOf(StartsWith("mesh.tensor = 5: expected"), HasSubstr("model.n_heads = 8"),
                                HasSubstr("model.n_kv_heads = 2"), HasSubstr("from 1, 2, 4, 8"))));
  c.d_ff = 42;
  c.vocab_pad_to = 6;
  EXPECT_THAT(slicing_problems(c, 4), ElementsAre(AllOf(HasSubstr("model.d_ff = 42"), HasSubstr("model.d_ff = 44")),
                                                  AllOf(HasSubstr("42, the rows"), HasSubstr("vocab.pad_to = 12"))));
}

}  // namespace
}  // namespace ashlar::model
