// Which attention cuDNN may serve.
#include "kernels/cuda/attention/cudnn_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace ashlar::cudnn {
namespace {

using ::testing::HasSubstr;

constexpr Library kHopper{.version = 91900, .sm = 90};
constexpr Library kAmpere{.version = 91900, .sm = 80};

AttentionFacts plain() { return {.B = 8, .T_q = 1024, .T_kv = 1024, .H = 12, .G = 12, .D = 64}; }

TEST(CudnnContract, PlainCausalBf16AttentionIsServed) {
  EXPECT_EQ(refusal(plain(), kHopper), "");
  EXPECT_EQ(refusal(plain(), kAmpere), "");
  EXPECT_EQ(refusal(plain(), {.version = 90800, .sm = 89}), "");
}

struct Refused {
  const char* name;
  std::function<void(AttentionFacts&)> change;
  const char* words;
};

TEST(CudnnContract, EachThingThatItHasNotIsRefusedByName) {
  const std::vector<Refused> table = {
      {"fp32", [](AttentionFacts& f) { f.storage = DType::kFloat32; }, "expected bf16, got fp32"},
      {"fp64", [](AttentionFacts& f) { f.storage = DType::kFloat64; }, "expected bf16, got fp64"},
      {"documents", [](AttentionFacts& f) { f.document_mask = true; }, "got a document mask"},
      {"dropout", [](AttentionFacts& f) { f.dropout = true; }, "got dropout"},
      {"soft cap", [](AttentionFacts& f) { f.softcap = true; }, "got a soft cap"},
      {"window", [](AttentionFacts& f) { f.window = true; }, "got a window"},
      {"chunks", [](AttentionFacts& f) { f.chunks = true; }, "got chunks"},
      {"sinks", [](AttentionFacts& f) { f.sinks = true; }, "got sinks"},
      {"values", [](AttentionFacts& f) { f.D_v = 32; }, "got head_dim 64 and values of 32"},
      {"ALiBi", [](AttentionFacts& f) { f.alibi = true; }, "got ALiBi slopes"},
      {"T5", [](AttentionFacts& f) { f.t5_bias = true; }, "got T5's bias"},
      {"cache", [](AttentionFacts& f) { f.cached = true; }, "keys, which begin elsewhere"},
      {"more keys", [](AttentionFacts& f) { f.T_kv = 2048; }, "got 1024 queries and 2048 keys"},
      {"one token", [](AttentionFacts& f) { f.T_q = f.T_kv = 1; }, "expected at least 2 tokens a sample, got 1"},
      {"odd head_dim", [](AttentionFacts& f) { f.D = 60; },
       "multiple of 8 up to 256 on compute capability 9.0, got 60"},
      {"wide heads", [](AttentionFacts& f) { f.D = 264; }, "up to 256 on compute capability 9.0, got 264"},
      {"odd rows", [](AttentionFacts& f) { f.aligned = false; }, "multiples of 16 bytes"},
      {"adding", [](AttentionFacts& f) { f.accumulates = true; }, "gradients that are added to"},
      {"a part", [](AttentionFacts& f) { f.partial = true; }, "dq, dk and dv"},
  };
  for (const Refused& row : table) {
    AttentionFacts facts = plain();
    row.change(facts);
    EXPECT_THAT(refusal(facts, kHopper), HasSubstr(row.words)) << row.name;
  }
}

TEST(CudnnContract, HeadsAreNarrowerBeforeHopper) {
  AttentionFacts facts = plain();
  facts.D = 128;
  EXPECT_EQ(refusal(facts, kAmpere), "");
  facts.D = 136;
  EXPECT_THAT(refusal(facts, kAmpere), HasSubstr("up to 128 on compute capability 8.0, got 136"));
  EXPECT_EQ(refusal(facts, kHopper), "");
  facts.D = 256;
  EXPECT_EQ(refusal(facts, kHopper), "");
}

TEST(CudnnContract, DevicesThatWereNeverTriedAreRefused) {
  EXPECT_THAT(refusal(plain(), {.version = 91900, .sm = 75}), HasSubstr("8.0 to 9.0, got 7.5"));
  EXPECT_THAT(refusal(plain(), {.version = 91900, .sm = 100}), HasSubstr("8.0 to 9.0, got 10.0"));
}

TEST(CudnnContract, VersionsThatAreTooOldOrKnownToBeWrongAreRefused) {
  EXPECT_THAT(refusal(plain(), {.version = 90701, .sm = 90}),
              HasSubstr("expected cuDNN 9.8.0 or a later 9, got 9.7.1"));
  EXPECT_THAT(refusal(plain(), {.version = 8907, .sm = 90}), HasSubstr("expected cuDNN 9.8.0 or a later 9"));
  EXPECT_THAT(refusal(plain(), {.version = 100000, .sm = 90}), HasSubstr("got 10.0.0"));
  EXPECT_THAT(refusal(plain(), {.version = 91000, .sm = 90}), HasSubstr("got 9.10.0: its backward of bf16 is wrong"));
  EXPECT_THAT(refusal(plain(), {.version = 91001, .sm = 90}), HasSubstr("got 9.10.1"));
  EXPECT_EQ(refusal(plain(), {.version = 91002, .sm = 90}), "");
}

TEST(CudnnContract, WhatNoLibraryServesIsToldWithoutOne) {
  EXPECT_EQ(refusal(plain()), "");
  AttentionFacts facts = plain();
  facts.D = 256;
  facts.T_q = facts.T_kv = 1001;
  EXPECT_EQ(refusal(facts), "") << "some library has it";
  facts.dropout = true;
  EXPECT_THAT(refusal(facts), HasSubstr("got dropout"));
}

TEST(CudnnContract, WhatALibraryServesForNoCallIsToldWithoutOne) {
  EXPECT_EQ(refusal(kHopper), "");
  EXPECT_EQ(refusal(Library{.version = 91500, .sm = 90}), "") << "right for some lengths";
  EXPECT_THAT(refusal(Library{.version = 91000, .sm = 90}), HasSubstr("got 9.10.0: its backward of bf16 is wrong"));
  EXPECT_THAT(refusal(Library{.version = 90701, .sm = 90}), HasSubstr("got 9.7.1"));
  EXPECT_THAT(refusal(Library{.version = 91900, .sm = 100}), HasSubstr("got 10.0"));
}

TEST(CudnnContract, AVersionMayBeWrongForSomeLengthsOnly) {
  AttentionFacts facts = plain();
  facts.T_q = facts.T_kv = 1000;
  EXPECT_THAT(refusal(facts, {.version = 91500, .sm = 90}), HasSubstr("no multiple of 128"));
  EXPECT_EQ(refusal(facts, {.version = 91501, .sm = 90}), "");
  facts.T_q = facts.T_kv = 1152;
  EXPECT_EQ(refusal(facts, {.version = 91500, .sm = 90}), "");
}

TEST(CudnnContract, EachKnownBadVersionHasASource) {
  for (const KnownBad& bad : known_bad_versions()) {
    EXPECT_LE(bad.first, bad.last);
    EXPECT_THAT(bad.source, ::testing::ContainsRegex("github.com/|cudnn-frontend")) << bad.what;
    AttentionFacts facts = plain();
    facts.T_q = facts.T_kv = 1001;
    EXPECT_THAT(refusal(facts, {.version = bad.last, .sm = 90}), HasSubstr(bad.source));
  }
}

}  // namespace
}  // namespace ashlar::cudnn
