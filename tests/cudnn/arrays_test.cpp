// A call of the contract as cuDNN is told of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn::arrays_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kB = 3, kT = 16, kH = 4, kG = 2, kD = 8;
constexpr int64_t kWidth = (kH + 2 * kG) * kD;  // of a row of q, k and v side by side

/// A call on packed rows of q, k, v; addresses are numbers, nothing is read.
class CudnnArrays : public ::testing::Test {
 protected:
  void* at(int64_t element) { return memory_.data() + 2 * element; }
  ConstView rows(int64_t first, int64_t cols, int64_t stride) {
    return {at(first), DType::kBFloat16, kB * kT, cols, stride};
  }
  MutView out_rows(int64_t first, int64_t cols, int64_t stride) {
    return {at(first), DType::kBFloat16, kB * kT, cols, stride};
  }
  AttentionShape shape() {
    return {.scores = {.scale = 0.25},
            .B = kB,
            .T_q = kT,
            .T_kv = kT,
            .H = kH,
            .G = kG,
            .D = kD,
            .q_batch_stride = kT * kWidth,
            .kv_batch_stride = kT * kWidth};
  }
  AttentionForward forward() {
    return {.q = rows(0, kH * kD, kWidth),
            .k = rows(kH * kD, kG * kD, kWidth),
            .v = rows((kH + kG) * kD, kG * kD, kWidth),
            .out = out_rows(4000, kH * kD, kH * kD),
            .lse = {at(8000), DType::kFloat32, 1, kB * kH * kT, kB * kH * kT},
            .shape = shape()};
  }
  AttentionBackward backward() {
    const AttentionForward f = forward();
    return {.dout = rows(12000, kH * kD, kH * kD),
            .q = f.q,
            .k = f.k,
            .v = f.v,
            .out = f.out,
            .lse = f.lse,
            .delta = {},
            .dq = out_rows(16000, kH * kD, kWidth),
            .dk = out_rows(16000 + kH * kD, kG * kD, kWidth),
            .dv = out_rows(16000 + (kH + kG) * kD, kG * kD, kWidth),
            .shape = shape()};
  }

  alignas(256) std::array<std::byte, 65536> memory_;
};

TEST_F(CudnnArrays, AForwardCall) {
  const AttentionForward call = forward();
  const AttentionCase c = case_of(call);
  EXPECT_EQ(c.B, kB);
  EXPECT_EQ(c.T, kT);
  EXPECT_EQ(c.H, kH);
  EXPECT_EQ(c.G, kG);
  EXPECT_EQ(c.D, kD);
  EXPECT_EQ(c.scale, 0.25);
  EXPECT_FALSE(c.backward);
  const Rows packed{.batch = kT * kWidth, .row = kWidth}, dense{.batch = kT * kH * kD, .row = kH * kD};
  EXPECT_EQ(c.q, packed);
  EXPECT_EQ(c.k, packed);
  EXPECT_EQ(c.v, packed);
  EXPECT_EQ(c.out, dense);
  const AttentionArrays a = arrays_of(call);
  EXPECT_EQ(a.q, at(0));
  EXPECT_EQ(a.k, at(kH * kD));
  EXPECT_EQ(a.v, at((kH + kG) * kD));
  EXPECT_EQ(a.out, at(4000));
  EXPECT_EQ(a.lse, at(8000));
  EXPECT_EQ(a.dq, nullptr);
}

TEST_F(CudnnArrays, ABackwardCall) {
  AttentionBackward call = backward();
  call.shape.kv_batch_stride = kT * kWidth + 64;  // keys elsewhere than queries
  const AttentionCase c = case_of(call);
  EXPECT_TRUE(c.backward);
  const Rows packed{.batch = kT * kWidth, .row = kWidth}, keys{.batch = kT * kWidth + 64, .row = kWidth};
  const Rows dense{.batch = kT * kH * kD, .row = kH * kD};
  EXPECT_EQ(c.q, packed);
  EXPECT_EQ(c.dq, packed);
  for (const Rows& r : {c.k, c.v, c.dk, c.dv}) EXPECT_EQ(r, keys);
  for (const Rows& r : {c.out, c.dout}) EXPECT_EQ(r, dense);
  const AttentionArrays a = arrays_of(call);
  EXPECT_EQ(a.q, at(0));
  EXPECT_EQ(a.out, at(4000));
  EXPECT_EQ(a.lse, at(8000));
  EXPECT_EQ(a.dout, at(12000));
  EXPECT_EQ(a.dq, at(16000));
  EXPECT_EQ(a.dk, at(16000 + kH * kD));
  EXPECT_EQ(a.dv, at(16000 + (kH + kG) * kD));
}

constexpr Library kHopper{.version = 91900, .sm = 90};

TEST_F(CudnnArrays, PlainCallsAreServed) {
  EXPECT_EQ(refusal(forward(), kHopper), "");
  EXPECT_EQ(refusal(backward(), kHopper), "");
}

TEST_F(CudnnArrays, WhatAForwardHasIsRefused) {
  AttentionForward call = forward();
  call.shape.mask.doc_start = {at(0), DType::kInt32, 1, kB * kT, kB * kT};
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("got a document mask"));
  call = forward();
  call.shape.mask.causal = false;
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("got attention to later keys"));
  for (const auto unaligned :
       {+[](AttentionForward& f) { f.q.data = static_cast<const BF16*>(f.q.data) + 4; },
        +[](AttentionForward& f) { f.out.stride += 4; }, +[](AttentionForward& f) { f.shape.kv_batch_stride += 4; }}) {
    call = forward();
    unaligned(call);
    EXPECT_THAT(refusal(call, kHopper), HasSubstr("multiples of 16 bytes"));
  }
}

TEST_F(CudnnArrays, WhatABackwardHasIsRefused) {
  AttentionBackward call = backward();
  call.shape.scores.softcap = 30;
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("got a soft cap"));
  call = backward();
  call.mode = GradMode::kAccumulate;
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("gradients that are added to"));
  call = backward();
  call.dk = {};
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("dq, dk and dv"));
  call = backward();
  call.delta = {at(0), DType::kFloat32, 1, kB * kH * kT, kB * kH * kT};
  EXPECT_THAT(refusal(call, kHopper), HasSubstr("dq, dk and dv"));
  for (const auto unaligned : {+[](AttentionBackward& b) { b.dv.data = static_cast<BF16*>(b.dv.data) + 1; },
                               +[](AttentionBackward& b) { b.dout.stride += 4; }}) {
    call = backward();
    unaligned(call);
    EXPECT_THAT(refusal(call, kHopper), HasSubstr("multiples of 16 bytes"));
  }
}

TEST_F(CudnnArrays, ACaseSurvivesItsText) {
  AttentionCase f = case_of(forward()), b = case_of(backward());
  f.scale = b.scale = 1 / std::sqrt(80.0);
  EXPECT_EQ(case_of(text_of(f)), f);
  EXPECT_EQ(case_of(text_of(b)), b);
  EXPECT_EQ(text_of(case_of(forward())).substr(0, 46), "forward B=3 T=16 H=4 G=2 D=8 scale=0.25 q=1024");
  for (const std::string& text : {std::string(), std::string("forward"), text_of(b).substr(0, text_of(b).size() - 3),
                                  text_of(f) + " more", "sideways" + text_of(f).substr(7)}) {
    try {
      case_of(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    }
  }
}

}  // namespace
}  // namespace ashlar::cudnn::arrays_test
