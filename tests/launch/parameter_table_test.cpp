// The table of parameters that a run prints at its start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/training/parameter_table.h"

namespace ashlar {
namespace {

TEST(ParameterTable, OneRowForAllLayersNamesTheFirstAndTheLastRule) {
  model::ModelConfig c;
  c.d_model = 16;
  c.n_layers = 3;
  c.n_heads = c.n_kv_heads = 2;
  c.head_dim = 8;
  c.d_ff = 32;
  c.vocab_size = 20;
  c.rope.dims = 8;
  c.attn.scale = 1;
  c.init = {.scheme = model::InitScheme::kMitchell, .std = 0.25, .trunc_sigma = 3.0};
  const std::string text = training::parameter_table(c, {});
  using ::testing::HasSubstr;
  EXPECT_THAT(text, HasSubstr("std 0.25: mitchell 1/sqrt(16), truncated at 3 sigma\n"));
  EXPECT_THAT(text, HasSubstr("std 0.125: mitchell 1/sqrt(2*32*1), truncated at 3 sigma to std 0.07217: mitchell "
                              "1/sqrt(2*32*3), truncated at 3 sigma\n"));
  EXPECT_THAT(text, HasSubstr("std 0.25: normal 0.25, truncated at 3 sigma\n"));
}

TEST(ParameterTable, OneRowForAllExperts) {
  model::ModelConfig c;
  c.d_model = 16;
  c.n_layers = 2;
  c.n_heads = c.n_kv_heads = 2;
  c.head_dim = 8;
  c.d_ff = 32;
  c.vocab_size = 20;
  c.rope.dims = 8;
  c.attn.scale = 1;
  c.moe = {.experts = 12, .top_k = 2, .d_ff = 8};
  const std::string text = training::parameter_table(c, {});
  EXPECT_THAT(text, ::testing::ContainsRegex("blocks\\.\\*\\.moe\\.experts\\.\\*\\.up\\.weight +24 "));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("experts.0")));
}

}  // namespace
}  // namespace ashlar
