// What the emulated backend is beside its kernels: memory kinds, copies, scratch, and the order of calls on streams.
#include "tests/gpu_emulator/backend/emulated_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace ashlar::emulated {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Fixture {
  EmulatedBackend backend{DeviceOptions{.seed = 3}};
  std::unique_ptr<Stream> a = backend.make_stream(), b = backend.make_stream();
  std::unique_ptr<Event> event = backend.make_event();
  Tensor x = tensor(), y = tensor();

  Tensor tensor() { return Tensor::allocate(backend.allocator(MemoryKind::kActivations), DType::kFloat32, Shape{300}); }
  emulator::WorkQueues& queues() { return backend.device().state().gpu.queues(); }
  std::vector<float> read(const Tensor& t) {
    std::vector<float> host(static_cast<size_t>(t.size()));
    backend.read(t.view(), host.data(), *a);
    return host;
  }
};

TEST(EmulatedBackend, SaysWhatItIs) {
  Fixture f;
  EXPECT_THAT(f.backend.description(),
              AllOf(HasSubstr("emulated device 0"), HasSubstr("random order"), HasSubstr("seed 3")));
  EXPECT_FALSE(f.a->synchronous());
  EXPECT_NE(f.a->native(), f.b->native());
  EXPECT_NE(f.event->native(), nullptr);
  EXPECT_EQ(f.backend.logits_dtype(DType::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(f.backend.loss_chunk_rows(100, 1000, DType::kFloat32), 100);
  EXPECT_EQ(f.backend.loss_chunk_rows(1 << 20, 50304, DType::kBFloat16), 10624);
  EXPECT_THROW(EmulatedBackend(DeviceOptions{.schedule = "backwards"}), Error);
  EXPECT_THROW(EmulatedBackend(DeviceOptions{.stream_order = "never"}), Error);
}

TEST(EmulatedBackend, CountsMemoryByItsKind) {
  Fixture f;
  const int64_t before = f.backend.allocator(MemoryKind::kActivations).used_bytes();
  EXPECT_EQ(before, 2 * 300 * 4);
  void* const block = f.backend.allocator(MemoryKind::kPinned).allocate(100);
  EXPECT_EQ(f.backend.allocator(MemoryKind::kPinned).used_bytes(), 100);
  static_cast<char*>(block)[99] = 1;  // the host's
  f.backend.allocator(MemoryKind::kPinned).release(block);
  f.x = {};
  EXPECT_EQ(f.backend.allocator(MemoryKind::kActivations).used_bytes(), 300 * 4);
  EXPECT_EQ(f.backend.allocator(MemoryKind::kActivations).high_water_bytes(), before);
  EmulatedBackend small(DeviceOptions{.max_memory_bytes = 1 << 20});
  EXPECT_THROW(small.allocator(MemoryKind::kGradients).allocate(2 << 20), Error);
}

TEST(EmulatedBackend, CopiesThroughKernelsAndBack) {
  Fixture f;
  std::vector<float> host(300);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  f.backend.copy_from_host(host.data(), f.x.mut_view(), *f.a);
  f.backend.copy({.src = f.x.view(), .dst = f.y.mut_view()}, *f.a);
  EXPECT_EQ(f.read(f.y), host);
}

TEST(EmulatedBackend, KeepsTheScratchOfAStreamAndGrowsIt) {
  Fixture f;
  Device& device = f.backend.device();
  void* const once = device.scratch(*f.a, 1000);
  EXPECT_EQ(device.scratch(*f.a, 500), once);
  EXPECT_NE(device.scratch(*f.b, 1000), once) << "another stream's";
  const int64_t used = f.backend.allocator(MemoryKind::kWorkspace).used_bytes();
  device.scratch(*f.a, 5000);
  EXPECT_EQ(f.backend.allocator(MemoryKind::kWorkspace).used_bytes(), used + 4000);
  f.a.reset();
  EXPECT_EQ(f.backend.allocator(MemoryKind::kWorkspace).used_bytes(), 1000);
}

// What was a stream's scratch memory is given to others only when the stream's work is done with it.
TEST(EmulatedBackend, WaitsBeforeItGivesScratchAway) {
  for (const bool destroyed : {false, true}) {
    Fixture f;
    const MutView x = f.x.mut_view(), dbias{f.y.mut_view().data, DType::kFloat32, 1, 60, 60};
    f.backend.linear_backward_weight({.dy = MutView{x.data, DType::kFloat32, 5, 60, 60},
                                      .x = MutView{x.data, DType::kFloat32, 5, 60, 60},
                                      .dw = {},
                                      .dbias = dbias,
                                      .mode = GradMode::kOverwrite},
                                     *f.a);
    void* const scratch = f.backend.device().scratch(*f.a, 1);
    const Tensor behind = f.tensor();
    if (destroyed) {
      f.a.reset();
    } else {
      f.backend.device().scratch(*f.a, 100000);
    }
    const Tensor again = Tensor::allocate(f.backend.allocator(MemoryKind::kActivations), DType::kFloat32, Shape{60});
    ASSERT_EQ(again.view().data, scratch);
    EXPECT_NO_THROW(f.backend.fill({.dst = again.mut_view(), .value = 1}, *f.b));
    f.b->synchronize();
  }
}

void ends_before_a_barrier(unsigned thread) {
  if (threadIdx.x == thread) return;
  __syncthreads();
}

// A stream that goes has nobody who could catch it.
TEST(EmulatedBackend, PrintsAnErrorThatTheEndOfAStreamFinds) {
  Fixture f;
  f.backend.device().scratch(*f.a, 1000);  // without, it need not wait for its work
  run_kernel(*f.a, {.name = "ends_before_a_barrier", .grid = 1, .block = 64}, ends_before_a_barrier, 37U);
  ::testing::internal::CaptureStderr();
  f.a.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("ends_before_a_barrier"), HasSubstr("thread (37,0,0)")));
  EXPECT_EQ(f.backend.allocator(MemoryKind::kWorkspace).used_bytes(), 0);
}

TEST(EmulatedBackend, KnowsThatACallUsesItsScratch) {
  Fixture f;
  const MutView x{f.x.mut_view().data, DType::kFloat32, 5, 60, 60},
      dbias{f.y.mut_view().data, DType::kFloat32, 1, 60, 60};
  f.backend.linear_backward_weight({.dy = x, .x = x, .dw = {}, .dbias = dbias, .mode = GradMode::kOverwrite}, *f.a);
  const MutView scratch{f.backend.device().scratch(*f.a, 1), DType::kFloat32, 1, 60, 60};
  EXPECT_THROW(f.backend.fill({.dst = scratch, .value = 1}, *f.b), Bug);
}

TEST(EmulatedBackend, FindsCallsThatNothingOrders) {
  {
    Fixture f;
    f.backend.fill({.dst = f.x.mut_view(), .value = 2}, *f.a);
    try {
      f.backend.copy({.src = f.x.view(), .dst = f.y.mut_view()}, *f.b);
      ADD_FAILURE() << "the missing wait was not found";
    } catch (const Bug& bug) {
      EXPECT_THAT(bug.what(), AllOf(HasSubstr("copy (call"), HasSubstr("on stream 1) reads what fill (call"),
                                    HasSubstr("on stream 0) writes: no event")));
    }
  }
  Fixture f;
  f.backend.fill({.dst = f.x.mut_view(), .value = 2}, *f.a);
  f.a->record(*f.event);
  f.b->wait_for(*f.event);
  f.backend.copy({.src = f.x.view(), .dst = f.y.mut_view()}, *f.b);
  f.b->synchronize();
  EXPECT_EQ(f.read(f.y), std::vector<float>(300, 2.0F));
}

TEST(EmulatedBackend, MeasuresTheRateOfItsProducts) {
  Fixture f;
  EXPECT_GT(f.backend.measure_peak(DType::kFloat32, 1e-3), 1e7);
  EXPECT_GE(f.backend.num_gemms(), 2);
  EXPECT_EQ(f.backend.allocator(MemoryKind::kWorkspace).used_bytes(), 0);
}

}  // namespace
}  // namespace ashlar::emulated
