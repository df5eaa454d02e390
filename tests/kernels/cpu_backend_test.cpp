// What the CPU's backend is beside its kernels: copies, events, the rows of a loss, what it says when it begins.
#include "kernels/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/tensor/tensor.h"

namespace ashlar::cpu {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> backend_on(int threads) {
  return std::make_unique<CpuBackend>(CpuOptions{.threads = threads});
}

// More than a thread's share of a copy, and not a multiple of it.
TEST(CpuBackend, CopiesToTheHostAndBack) {
  for (const int threads : {1, 2}) {
    const auto backend = backend_on(threads);
    const auto stream = backend->make_stream();
    std::vector<float> host(700'001), back(host.size());
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
    const Tensor x = Tensor::allocate(backend->allocator(MemoryKind::kActivations), DType::kFloat32,
                                      Shape{static_cast<int64_t>(host.size())});
    backend->copy_from_host(host.data(), x.mut_view(), *stream);
    backend->copy_to_host(x.view(), back.data(), *stream);
    EXPECT_EQ(back, host);
    MutView apart = x.mut_view();
    apart.rows = 2;
    apart.cols = 100;
    EXPECT_THROW(backend->copy_from_host(host.data(), apart, *stream), Bug) << "rows with gaps";
    EXPECT_THROW(backend->copy_to_host(apart, back.data(), *stream), Bug) << "rows with gaps";
  }
}

TEST(CpuBackend, CountsMemoryByItsKind) {
  const auto backend = backend_on(1);
  Allocator& gradients = backend->allocator(MemoryKind::kGradients);
  void* const block = gradients.allocate(100);
  gradients.release(gradients.allocate(300));
  EXPECT_EQ(gradients.used_bytes(), 256) << "in whole pieces of 256";
  EXPECT_EQ(gradients.high_water_bytes(), 256 + 512);
  EXPECT_EQ(backend->allocator(MemoryKind::kParameters).high_water_bytes(), 0);
  gradients.release(block);
  EXPECT_EQ(gradients.used_bytes(), 0);
}

TEST(CpuBackend, IsDoneWhenACallReturns) {
  const auto backend = backend_on(1);
  const auto stream = backend->make_stream();
  const auto event = backend->make_event();
  EXPECT_TRUE(stream->synchronous());
  stream->record(*event);
  stream->wait_for(*event);
  event->synchronize();
  EXPECT_TRUE(event->reached());
}

TEST(CpuBackend, CountsItsMatrixProducts) {
  const auto backend = backend_on(1);
  const auto stream = backend->make_stream();
  const Tensor x = Tensor::allocate(backend->allocator(MemoryKind::kActivations), DType::kFloat32, Shape{3, 3});
  backend->fill({.dst = x.mut_view(), .value = 1}, *stream);
  EXPECT_EQ(backend->num_gemms(), 0);
  const Tensor y = Tensor::allocate(backend->allocator(MemoryKind::kActivations), DType::kFloat32, Shape{3, 3});
  backend->linear_forward({.x = x.view(), .w = x.view(), .bias = {}, .y = y.mut_view()}, *stream);
  EXPECT_EQ(backend->num_gemms(), 1);
}

// Multiples of 64 rows whose logits take 64 MiB, but no more rows than there are, and 64 where one row is too long.
TEST(CpuBackend, CutsALossIntoRowsOf64MiB) {
  const auto backend = backend_on(1);
  EXPECT_EQ(backend->loss_chunk_rows(100, 1000, DType::kFloat32), 100);
  EXPECT_EQ(backend->loss_chunk_rows(1 << 20, 1 << 14, DType::kFloat32), 1024);
  EXPECT_EQ(backend->loss_chunk_rows(1 << 20, 50304, DType::kFloat32), 320);
  EXPECT_EQ(backend->loss_chunk_rows(1 << 20, 167'772, DType::kFloat32), 64) << "100 rows fit";
  EXPECT_EQ(backend->loss_chunk_rows(1 << 20, 1 << 20, DType::kFloat64), 64);
  EXPECT_EQ(backend->loss_chunk_rows(10, 1 << 20, DType::kFloat64), 10);
}

TEST(CpuBackend, SaysOnceThatBf16IsWidened) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  for (int n = 0; n < 2; ++n) CpuBackend({.threads = 1, .log = &log, .max_isa = "baseline"});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("bf16 matrices are widened to fp32 while they are packed"));
  EXPECT_THAT(lines[0], HasSubstr(detect_cpu().detected == Isa::kAvx512Bf16 ? "disabled" : "has no bf16 dot product"));
}

// The bf16 dot product takes twice the numbers of an fp32 multiply-add; a machine that others use measures either at a
// third of itself at times.
TEST(CpuBackend, MeasuresThePeakOfTheBf16DotProduct) {
  if (detect_cpu().detected != Isa::kAvx512Bf16) GTEST_SKIP() << "this machine has no bf16 dot product";
  CpuBackend backend({.threads = 1, .max_isa = "avx512_bf16"});
  const double single = backend.measure_peak(DType::kFloat32, 1e-2), dot = backend.measure_peak(DType::kBFloat16, 1e-2);
  EXPECT_GT(dot, single / 3);
  EXPECT_LT(dot, 9 * single);
}

}  // namespace
}  // namespace ashlar::cpu
