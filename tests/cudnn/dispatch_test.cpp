// A backend whose attention of one shape is served by plans: on the emulated device, whose streams run late and in
// random order, whose memory is closed to the host and NaN until it is written.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/attention/cudnn_backend.h"
#include "kernels/cuda/attention/cudnn_self_test.h"
#include "kernels/cuda/dev/emulated_state.h"
#include "tests/cudnn/host_planner.h"

namespace ashlar::cudnn {
namespace {

using emulated::CudaBackend;
using emulated::CudnnBackend;
using testing::HostPlanner;
using testing::Planted;

constexpr int64_t kB = 2, kT = 32, kH = 4, kG = 2, kD = 16, kWidth = (kH + 2 * kG) * kD;

AttentionCase packed(bool backward) {
  AttentionCase c{.B = kB, .T = kT, .H = kH, .G = kG, .D = kD, .scale = 0.3};
  c.q = c.k = c.v = {.batch = kT * kWidth, .row = kWidth};
  c.out = {.batch = kT * kH * kD, .row = kH * kD};
  c.backward = backward;
  if (backward) {
    c.dout = c.out;
    c.dq = c.dk = c.dv = c.q;
  }
  return c;
}

/// Forward and backward of T tokens a sample on a backend; what they wrote.
std::vector<float> results(Backend& backend, Stream& stream, int64_t T, GradMode mode = GradMode::kOverwrite) {
  Allocator& memory = backend.allocator(MemoryKind::kActivations);
  const auto rows = [&](int64_t cols) {
    return MutView{memory.allocate(kB * T * cols * 2), DType::kBFloat16, kB * T, cols, cols};
  };
  const MutView qkv = rows(kWidth), dout = rows(kH * kD), out = rows(kH * kD), gradients = rows(kWidth);
  const MutView lse{memory.allocate(kB * kH * T * 4), DType::kFloat32, 1, kB * kH * T, kB * kH * T};
  backend.random_fill({.dst = qkv, .seed = 3, .global_cols = kWidth}, stream);
  backend.random_fill({.dst = dout, .seed = 4, .global_cols = kH * kD}, stream);
  backend.fill({.dst = gradients, .value = 0}, stream);
  const auto part = [](const MutView& v, int64_t first, int64_t cols) {
    return MutView{static_cast<BF16*>(v.data) + first, v.dtype, v.rows, cols, v.stride};
  };
  const MutView q = part(qkv, 0, kH * kD), k = part(qkv, kH * kD, kG * kD), v = part(qkv, (kH + kG) * kD, kG * kD);
  const AttentionShape shape{.variant = {.scale = 0.3},
                             .B = kB,
                             .T_q = T,
                             .T_kv = T,
                             .H = kH,
                             .G = kG,
                             .D = kD,
                             .q_batch_stride = T * kWidth,
                             .kv_batch_stride = T * kWidth};
  backend.attention_forward({.q = q, .k = k, .v = v, .out = out, .lse = lse, .shape = shape}, stream);
  backend.attention_backward({.dout = dout,
                              .q = q,
                              .k = k,
                              .v = v,
                              .out = out,
                              .lse = lse,
                              .delta = {},
                              .dq = part(gradients, 0, kH * kD),
                              .dk = part(gradients, kH * kD, kG * kD),
                              .dv = part(gradients, (kH + kG) * kD, kG * kD),
                              .mode = mode,
                              .shape = shape},
                             stream);
  std::vector<float> all(static_cast<size_t>(lse.size()));
  backend.read(lse, all.data(), stream);
  for (const MutView& view : {out, gradients}) {
    std::vector<BF16> values(static_cast<size_t>(view.size()));
    backend.read(view, values.data(), stream);
    for (const BF16 x : values) all.push_back(static_cast<float>(x));
  }
  for (const MutView& view : {qkv, dout, out, gradients, lse}) memory.release(view.data);
  return all;
}

class CudnnDispatch : public ::testing::Test {
 protected:
  static void queue(Stream& stream, std::function<void()> run) {
    emulated::internal::queue_arithmetic(stream, "attention of cuDNN", std::move(run));
  }
  void serve() { backend_.serve_attention(prepared(), *stream_); }
  std::unique_ptr<PreparedAttention> prepared() {
    return std::make_unique<PreparedAttention>(planner_, packed(false), packed(true));
  }

  HostPlanner planner_{Planted::kNothing, queue};
  CudnnBackend backend_{emulated::DeviceOptions{.seed = 7}};
  std::unique_ptr<Stream> stream_ = backend_.make_stream();
  CudaBackend plain_{emulated::DeviceOptions{.seed = 7}};
  std::unique_ptr<Stream> plain_stream_ = plain_.make_stream();
};

TEST_F(CudnnDispatch, CallsOfThePreparedShapeRunThePlans) {
  serve();
  const std::vector<float> got = results(backend_, *stream_, kT), want = results(plain_, *plain_stream_, kT);
  EXPECT_EQ(planner_.runs, 2);
  ASSERT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << i;
    error += static_cast<double>((got[i] - want[i]) * (got[i] - want[i]));
    size += static_cast<double>(want[i] * want[i]);
  }
  EXPECT_LE(std::sqrt(error / size), kMeanTolerance);
}

TEST_F(CudnnDispatch, OtherCallsAreOurOwnToTheBit) {
  serve();
  EXPECT_EQ(results(backend_, *stream_, kT - 8), results(plain_, *plain_stream_, kT - 8)) << "another length";
  EXPECT_EQ(planner_.runs, 0);
  results(backend_, *stream_, kT, GradMode::kAccumulate);
  EXPECT_EQ(planner_.runs, 1) << "a backward that adds is not cuDNN's";
}

TEST_F(CudnnDispatch, UnservedABackendIsOurOwnToTheBit) {
  EXPECT_EQ(results(backend_, *stream_, kT), results(plain_, *plain_stream_, kT));
  EXPECT_EQ(planner_.runs, 0);
}

TEST_F(CudnnDispatch, TheWorkspaceIsThereBeforeTheFirstStep) {
  const auto used = [&] { return backend_.allocator(MemoryKind::kWorkspace).used_bytes(); };
  const int64_t before = used();
  serve();
  EXPECT_GE(used() - before, prepared()->workspace_bytes());
  const int64_t served = used();
  results(backend_, *stream_, kT);
  EXPECT_EQ(used(), served);
}

TEST_F(CudnnDispatch, TheSelfTestRunsOnTheDevice) {
  EXPECT_EQ(self_test(backend_, *prepared(), packed(false), *stream_), "");
  EXPECT_EQ(planner_.runs, 4);
  HostPlanner wrong(Planted::kSwapped, queue);
  PreparedAttention swapped(wrong, packed(false), packed(true));
  EXPECT_NE(self_test(backend_, swapped, packed(false), *stream_), "");
}

}  // namespace
}  // namespace ashlar::cudnn
