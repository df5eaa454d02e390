// Which attention cuDNN may serve.
#include "kernels/cuda/attention/cudnn_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace ashlar::cudnn::contract_test {
namespace {

using ::testing::HasSubstr;

constexpr Library kHopper{.version = 91900, .sm = 90};
constexpr Library kAmpere{.version = 91900, .sm = 80};

/// Calls of a shape, of which nothing but its shape is known.
struct Calls {
  AttentionShape shape;
  DType storage = DType::kBFloat16;
};
Calls plain() { return {.shape = {.B = 8, .T_q = 1024, .T_kv = 1024, .H = 12, .G = 12, .D = 64}}; }
std::string refused(const Calls& calls, const Library& library) { return refusal(calls.shape, calls.storage, library); }
std::string refused(const Calls& calls) { return refusal(calls.shape, calls.storage); }

/// As a configuration describes it: no memory.
constexpr ConstView kDescribed{.rows = 1, .cols = 12, .stride = 12};

TEST(CudnnContract, PlainCausalBf16AttentionIsServed) {
  EXPECT_EQ(refused(plain(), kHopper), "");
  EXPECT_EQ(refused(plain(), kAmpere), "");
  EXPECT_EQ(refused(plain(), {.version = 90800, .sm = 89}), "");
}

struct Refused {
  const char* name;
  std::function<void(Calls&)> change;
  const char* words;
};

TEST(CudnnContract, EachThingThatItHasNotIsRefusedByName) {
  const std::vector<Refused> table = {
      {"fp32", [](Calls& c) { c.storage = DType::kFloat32; }, "expected bf16, got fp32"},
      {"fp64", [](Calls& c) { c.storage = DType::kFloat64; }, "expected bf16, got fp64"},
      {"not causal", [](Calls& c) { c.shape.mask.causal = false; }, "got attention to later keys"},
      {"documents", [](Calls& c) { c.shape.mask.doc_start = kDescribed; }, "got a document mask"},
      {"ends", [](Calls& c) { c.shape.mask.doc_end = kDescribed; }, "got another option"},
      {"dropout", [](Calls& c) { c.shape.dropout.p = 0.5; }, "got dropout"},
      {"soft cap", [](Calls& c) { c.shape.scores.softcap = 30; }, "got a soft cap"},
      {"window", [](Calls& c) { c.shape.mask.window = 128; }, "got a window"},
      {"chunks", [](Calls& c) { c.shape.mask.chunk = 128; }, "got chunks"},
      {"sinks", [](Calls& c) { c.shape.scores.sinks = kDescribed; }, "got sinks"},
      {"values", [](Calls& c) { c.shape.D_v = 32; }, "got head_dim 64 and values of 32"},
      {"ALiBi", [](Calls& c) { c.shape.scores.alibi_slopes = kDescribed; }, "got ALiBi slopes"},
      {"T5", [](Calls& c) { c.shape.scores.t5_bias = kDescribed; }, "got T5's bias"},
      {"T5's buckets", [](Calls& c) { c.shape.scores.t5_buckets = kDescribed; }, "got another option"},
      {"cache", [](Calls& c) { c.shape.mask.q_start = 5; }, "keys from another position"},
      {"more keys", [](Calls& c) { c.shape.T_kv = 2048; }, "got 1024 queries and 2048 keys"},
      {"one token", [](Calls& c) { c.shape.T_q = c.shape.T_kv = 1; }, "expected at least 2 tokens a sample, got 1"},
      {"odd head_dim", [](Calls& c) { c.shape.D = 60; }, "multiple of 8 up to 256 on compute capability 9.0, got 60"},
      {"wide heads", [](Calls& c) { c.shape.D = 264; }, "up to 256 on compute capability 9.0, got 264"},
  };
  for (const Refused& row : table) {
    Calls calls = plain();
    row.change(calls);
    EXPECT_THAT(refused(calls, kHopper), HasSubstr(row.words)) << row.name;
  }
}

TEST(CudnnContract, HeadsAreNarrowerBeforeHopper) {
  Calls calls = plain();
  calls.shape.D = 128;
  EXPECT_EQ(refused(calls, kAmpere), "");
  calls.shape.D = 136;
  EXPECT_THAT(refused(calls, kAmpere), HasSubstr("up to 128 on compute capability 8.0, got 136"));
  EXPECT_EQ(refused(calls, kHopper), "");
  calls.shape.D = 256;
  EXPECT_EQ(refused(calls, kHopper), "");
}

TEST(CudnnContract, DevicesThatWereNeverTriedAreRefused) {
  EXPECT_THAT(refused(plain(), {.version = 91900, .sm = 75}), HasSubstr("8.0 to 9.0, got 7.5"));
  EXPECT_THAT(refused(plain(), {.version = 91900, .sm = 100}), HasSubstr("8.0 to 9.0, got 10.0"));
}

TEST(CudnnContract, VersionsThatAreTooOldOrKnownToBeWrongAreRefused) {
  EXPECT_THAT(refused(plain(), {.version = 90701, .sm = 90}),
              HasSubstr("expected cuDNN 9.8.0 or a later 9.x, got 9.7.1"));
  EXPECT_THAT(refused(plain(), {.version = 8907, .sm = 90}), HasSubstr("expected cuDNN 9.8.0 or a later 9"));
  EXPECT_THAT(refused(plain(), {.version = 100000, .sm = 90}), HasSubstr("got 10.0.0"));
  EXPECT_THAT(refused(plain(), {.version = 91000, .sm = 90}), HasSubstr("got 9.10.0: its backward of bf16 is wrong"));
  EXPECT_THAT(refused(plain(), {.version = 91001, .sm = 90}), HasSubstr("got 9.10.1"));
  EXPECT_EQ(refused(plain(), {.version = 91002, .sm = 90}), "");
}

TEST(CudnnContract, WhatNoLibraryServesIsToldWithoutOne) {
  EXPECT_EQ(refused(plain()), "");
  Calls calls = plain();
  calls.shape.D = 256;
  calls.shape.T_q = calls.shape.T_kv = 1001;
  EXPECT_EQ(refused(calls), "") << "some library has it";
  calls.shape.dropout.p = 0.5;
  EXPECT_THAT(refused(calls), HasSubstr("got dropout"));
}

TEST(CudnnContract, WhatALibraryServesForNoCallIsToldWithoutOne) {
  EXPECT_EQ(refusal(kHopper), "");
  EXPECT_EQ(refusal(Library{.version = 91500, .sm = 90}), "") << "right for some lengths";
  EXPECT_THAT(refusal(Library{.version = 91000, .sm = 90}), HasSubstr("got 9.10.0: its backward of bf16 is wrong"));
  EXPECT_THAT(refusal(Library{.version = 90701, .sm = 90}), HasSubstr("got 9.7.1"));
  EXPECT_THAT(refusal(Library{.version = 91900, .sm = 100}), HasSubstr("got 10.0"));
}

TEST(CudnnContract, AVersionMayBeWrongForSomeLengthsOnly) {
  Calls calls = plain();
  calls.shape.T_q = calls.shape.T_kv = 1000;
  EXPECT_THAT(refused(calls, {.version = 91500, .sm = 90}), HasSubstr("no multiple of 128"));
  EXPECT_EQ(refused(calls, {.version = 91501, .sm = 90}), "");
  calls.shape.T_q = calls.shape.T_kv = 1152;
  EXPECT_EQ(refused(calls, {.version = 91500, .sm = 90}), "");
}

TEST(CudnnContract, EachKnownBadVersionHasASource) {
  for (const KnownBad& bad : known_bad_versions()) {
    EXPECT_LE(bad.first, bad.last);
    EXPECT_THAT(bad.source, ::testing::ContainsRegex("github.com/|cudnn-frontend")) << bad.what;
    Calls calls = plain();
    calls.shape.T_q = calls.shape.T_kv = 1001;
    EXPECT_THAT(refused(calls, {.version = bad.last, .sm = 90}), HasSubstr(bad.source));
  }
}

}  // namespace
}  // namespace ashlar::cudnn::contract_test
