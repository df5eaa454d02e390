// A backend whose attention of one shape is served by plans: on the emulated device, whose streams run late and in
// random order, whose memory is closed to the host and NaN until it is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/attention/cudnn_backend.h"
#include "tests/cudnn/host_planner.h"
#include "tests/gpu_emulator/backend/emulated_state.h"

namespace ashlar::cudnn::dispatch_test {
namespace {

using emulated::CudaBackend;
using emulated::CudnnBackend;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HostPlanner;
using testing::Planted;

constexpr int64_t kB = 2, kT = 32, kH = 4, kG = 2, kD = 16, kWidth = (kH + 2 * kG) * kD;

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
  const AttentionShape shape{.scores = {.scale = 0.3},
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
  CudnnBackend make(AttentionKernels wanted, Planted planted = Planted::kNothing) {
    return CudnnBackend(emulated::DeviceOptions{.seed = 7}, {.wanted = wanted,
                                                             .make_planner =
                                                                 [this, planted] {
                                                                   auto made =
                                                                       std::make_unique<HostPlanner>(planted, queue);
                                                                   planner_ = made.get();
                                                                   return made;
                                                                 },
                                                             .free_bytes = [] { return int64_t{1} << 30; }});
  }
  /// What a run does before its first step.
  std::vector<std::string> choose(CudnnBackend& backend, Stream& stream) {
    results(backend, stream, kT);
    auto& tuner = dynamic_cast<PreparingTuner&>(*backend.tuner());
    tuner.use(tuner.measure(tuner.met()));
    tuner.prepare();
    const std::vector<std::string> lines = tuner.report();
    if (planner_ != nullptr) planner_->runs = 0;
    return lines;
  }

  HostPlanner* planner_ = nullptr;  ///< of the backend that was made last
  CudaBackend plain_{emulated::DeviceOptions{.seed = 7}};
  std::unique_ptr<Stream> plain_stream_ = plain_.make_stream();
};

TEST_F(CudnnDispatch, CallsOfACaseThatWasChosenRunThePlans) {
  CudnnBackend backend = make(AttentionKernels::kAuto);
  const std::unique_ptr<Stream> stream = backend.make_stream();
  EXPECT_THAT(choose(backend, *stream), ElementsAre("attention uses cuDNN 9.19.0, with a workspace of 0 MB"));
  EXPECT_EQ(backend.attention_workspace_bytes(), kB * kH * kT * kT * 4);
  const std::vector<float> got = results(backend, *stream, kT), want = results(plain_, *plain_stream_, kT);
  EXPECT_EQ(planner_->runs, 2);
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
  CudnnBackend backend = make(AttentionKernels::kAuto);
  const std::unique_ptr<Stream> stream = backend.make_stream();
  choose(backend, *stream);
  EXPECT_EQ(results(backend, *stream, kT - 8), results(plain_, *plain_stream_, kT - 8)) << "another length";
  EXPECT_EQ(planner_->runs, 0);
  results(backend, *stream, kT, GradMode::kAccumulate);
  EXPECT_EQ(planner_->runs, 1) << "a backward that adds is not cuDNN's";
}

TEST_F(CudnnDispatch, ABackendThatHasNotChosenIsOurOwnToTheBit) {
  for (const AttentionKernels wanted : {AttentionKernels::kAuto, AttentionKernels::kOwn}) {
    CudnnBackend backend = make(wanted);
    const std::unique_ptr<Stream> stream = backend.make_stream();
    EXPECT_EQ(results(backend, *stream, kT), results(plain_, *plain_stream_, kT));
    EXPECT_EQ(backend.tuner() == nullptr, wanted == AttentionKernels::kOwn);
    EXPECT_EQ(planner_ != nullptr, wanted == AttentionKernels::kAuto);
    if (planner_ != nullptr) {
      EXPECT_EQ(planner_->runs, 0);
    }
    planner_ = nullptr;
  }
}

TEST_F(CudnnDispatch, TheWorkspaceIsThereBeforeTheFirstStep) {
  CudnnBackend backend = make(AttentionKernels::kCudnn);
  const std::unique_ptr<Stream> stream = backend.make_stream();
  const auto used = [&] { return backend.allocator(MemoryKind::kWorkspace).used_bytes(); };
  choose(backend, *stream);
  EXPECT_GE(used(), backend.attention_workspace_bytes());
  const int64_t chosen = used();
  results(backend, *stream, kT);
  EXPECT_EQ(used(), chosen);
}

TEST_F(CudnnDispatch, ResultsThatDifferOnTheDeviceAreRefused) {
  CudnnBackend backend = make(AttentionKernels::kAuto, Planted::kSwapped);
  const std::unique_ptr<Stream> stream = backend.make_stream();
  EXPECT_THAT(choose(backend, *stream),
              Contains(HasSubstr("our own kernels: expected cuDNN to agree with our own kernels, "
                                 "got a dk that is off")));
  results(backend, *stream, kT);
  EXPECT_EQ(planner_->runs, 1) << "the forward alone";
}

}  // namespace
}  // namespace ashlar::cudnn::dispatch_test
