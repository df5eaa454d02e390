// The device of kernels/cuda/dev and a file of kernels as nvcc makes it, on the stand-in for the CUDA runtime: which
// device, what is said when there is none or when it fails, memory, launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/cuda/gemm/gemm_epilogue.h"
#include "kernels/cuda/host/cuda_state.h"
#include "kernels/cuda/host/launch_kernel.h"
#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaDevices : public ::testing::Test {
 protected:
  ~CudaDevices() override { ashlar_stand_in_reset(""); }

  /// The one line that a user sees who has such a machine.
  std::string refusal(const char* machine, int ordinal = 0) {
    ashlar_stand_in_reset(machine);
    try {
      Device device({.ordinal = ordinal});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    return "it opened";
  }
};

TEST_F(CudaDevices, AreNamedWithTheirUuid) {
  ashlar_stand_in_reset("devices=2");
  EXPECT_THAT(Device({.ordinal = 1}).description(),
              AllOf(HasSubstr("device 1"), HasSubstr("Ashlar Stand-In"),
                    HasSubstr("GPU-6173686c-6172-2d73-7461-6e642d696e01"), HasSubstr("sm_90"), HasSubstr("4096 MiB")));
}

TEST_F(CudaDevices, NeedADriver) {
  EXPECT_THAT(refusal("driver=0"),
              AllOf(HasSubstr("[run.device]"), HasSubstr("needs NVIDIA's driver"), HasSubstr("libcuda.so.1")));
}

TEST_F(CudaDevices, NeedADriverThatIsNewEnough) {
  setenv("ASHLAR_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  EXPECT_THAT(refusal("driver=12040"),
              AllOf(HasSubstr("expected NVIDIA's driver 580 or newer, of CUDA 13.0"),
                    HasSubstr("got one too old, which supports CUDA 12.4"), HasSubstr("nvcc of CUDA 12"),
                    HasSubstr("cuda-compat-13-0"), HasSubstr("run.device = \"cpu\"")));
  EXPECT_THAT(refusal("driver=11080"), Not(HasSubstr("nvcc of CUDA 12"))) << "which is too old for it too";
  unsetenv("ASHLAR_NVML");
}

TEST_F(CudaDevices, MustBeVisible) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(refusal("devices=0"), AllOf(HasSubstr("finds no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES is not set")));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(refusal("devices=0"), HasSubstr("CUDA_VISIBLE_DEVICES = \"\""));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(CudaDevices, MustBeThere) {
  EXPECT_THAT(refusal("devices=1", 1), AllOf(HasSubstr("device 1"), HasSubstr("1 is visible")));
  EXPECT_THAT(refusal("devices=2", 3), AllOf(HasSubstr("device 3"), HasSubstr("2 are visible")));
}

TEST_F(CudaDevices, MustBeNewEnough) {
  EXPECT_THAT(refusal("capability=75"),
              AllOf(HasSubstr("Ashlar Stand-In"), HasSubstr("compute capability 7.5"), HasSubstr("needs 8.0")));
}

// A thread has device 0 until it chooses another; a context there would take memory of a GPU that another rank has.
TEST_F(CudaDevices, AreThoseOfEachThreadThatWaits) {
  ashlar_stand_in_reset("devices=2");
  Device device({.ordinal = 1});
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Event> event = device.make_event();
  stream->record(*event);
  std::thread([&] {
    event->synchronize();
    EXPECT_TRUE(event->reached());
  }).join();
  EXPECT_EQ(ashlar_stand_in_contexts(), 1);
}

TEST_F(CudaDevices, SayHowMuchMemoryIsLeft) {
  ashlar_stand_in_reset("memory_mib=400 context_mib=200");
  Device device({});
  Allocator& memory = device.allocator(MemoryKind::kActivations);
  memory.allocate(int64_t{100} << 20);
  try {
    memory.allocate(int64_t{150} << 20);
    FAIL() << "there is not so much";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kResource);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("150 MiB more of device memory"), HasSubstr("100 of 400 MiB are free"),
                                    HasSubstr("this run uses 100"), HasSubstr("train.micro_batch")));
  }
  EXPECT_NE(memory.allocate(int64_t{60} << 20), nullptr) << "the device still works";
}

TEST_F(CudaDevices, TakeMemoryInFewCallsAndLeaveLittleUnused) {
  ashlar_stand_in_reset("");
  Device device({});
  Allocator& memory = device.allocator(MemoryKind::kActivations);
  for (int64_t taken = 0; taken < int64_t{100} << 20; taken += 1 << 20) memory.allocate(1 << 20);
  EXPECT_EQ(memory.used_bytes(), int64_t{100} << 20);
  EXPECT_EQ(ashlar_stand_in_calls("cudaMalloc"), 7) << "2 + 2 + 4 + 8 + 16 + 32 + 64 MiB";
  EXPECT_EQ(memory.high_water_bytes(), int64_t{128} << 20);
  memory.release(memory.allocate(1 << 20));
  EXPECT_EQ(memory.used_bytes(), int64_t{100} << 20) << "what is given back is not used";
}

// A run's tensors often have one size. Whenever memory is taken, little of what was taken before is unused.
TEST_F(CudaDevices, WasteLittleWithTensorsOfOneSize) {
  for (const int64_t mib : {5, 20, 33, 48}) {
    ashlar_stand_in_reset("");
    Device device({});
    Allocator& memory = device.allocator(MemoryKind::kActivations);
    while (memory.used_bytes() < int64_t{150} << 20) {
      const int64_t calls = memory.num_system_calls(), taken = memory.high_water_bytes(), used = memory.used_bytes();
      memory.allocate(mib << 20);
      if (memory.num_system_calls() == calls || taken < int64_t{40} << 20) continue;
      EXPECT_LE(taken - used, taken / 8) << "tensors of " << mib << " MiB, " << (taken >> 20) << " MiB taken";
    }
    EXPECT_LE(memory.num_system_calls(), 7);
  }
}

// As for operands of algorithms that are timed.
TEST_F(CudaDevices, GiveEmptySlabsBackOnRequest) {
  ashlar_stand_in_reset("memory_mib=60 context_mib=0");
  Device device({});
  SlabAllocator& memory = *device.state().allocators.at(static_cast<size_t>(MemoryKind::kActivations));
  void* const before = memory.allocate(int64_t{10} << 20);
  const int64_t calls = memory.num_system_calls();
  void* const large = memory.allocate(int64_t{15} << 20);  // of a slab of 16
  void* const kept = memory.allocate(int64_t{2} << 20);    // of one of 26
  memory.release(large);
  memory.release(before);
  memory.give_back_since(calls);
  EXPECT_EQ(ashlar_stand_in_calls("cudaFree"), 1) << "not what is in use, nor what was taken before";
  EXPECT_EQ(device.state().taken_bytes, int64_t{10 + 26} << 20);
  EXPECT_EQ(memory.high_water_bytes(), int64_t{10 + 16 + 26} << 20);
  EXPECT_NE(device.allocator(MemoryKind::kGradients).allocate(int64_t{15} << 20), nullptr);
  memory.release(kept);
  EXPECT_EQ(memory.allocate(int64_t{10} << 20), before);
  memory.give_back_since(calls);
  EXPECT_EQ(device.state().taken_bytes, int64_t{10 + 16} << 20);
}

TEST_F(CudaDevices, TakeNoMoreThanTheyMay) {
  ashlar_stand_in_reset("");
  Device device({.max_memory_bytes = int64_t{4} << 20});
  device.allocator(MemoryKind::kParameters).allocate(1);
  device.allocator(MemoryKind::kGradients).allocate(1);
  device.allocator(MemoryKind::kPinned).allocate(1);
  EXPECT_THROW(device.allocator(MemoryKind::kOptimizer).allocate(1), Error) << "the bound is that of all kinds";
}

// As NCCL's, for its windows (parallel/comm/nccl_windows.h).
TEST_F(CudaDevices, TakeMemoryOfASourceThatHasSome) {
  struct Source final : MemorySource {
    void* allocate(int64_t bytes) override {
      void* memory = nullptr;
      if (bytes <= int64_t{64} << 20 && cudaMalloc(&memory, static_cast<size_t>(bytes)) == cudaSuccess) ++taken;
      return memory;
    }
    void release(void* memory) noexcept override { given_back += cudaFree(memory) == cudaSuccess ? 1 : 0; }
    int taken = 0, given_back = 0;
  };
  ashlar_stand_in_reset("");
  const auto source = std::make_shared<Source>();
  {
    Device device({});
    SlabAllocator& memory = *device.state().allocators.at(static_cast<size_t>(MemoryKind::kGradients));
    memory.allocate(int64_t{40} << 20);
    memory.release(memory.allocate(int64_t{30} << 20));  // of a slab of its own size
    memory.set_memory_source(source);
    memory.allocate(int64_t{20} << 20);
    EXPECT_EQ(source->taken, 0) << "a slab of before has room";
    void* const block = memory.allocate(int64_t{60} << 20);
    EXPECT_EQ(source->taken, 1);
    memory.allocate(int64_t{100} << 20);  // of the driver's, since the source has none
    EXPECT_EQ(memory.high_water_bytes(), int64_t{40 + 30 + 60 + 100} << 20);
    EXPECT_EQ(device.state().taken_bytes, memory.high_water_bytes());
    memory.release(block);
    EXPECT_EQ(memory.allocate(int64_t{60} << 20), block);
  }
  EXPECT_EQ(source->taken, 1);
  EXPECT_EQ(source->given_back, 1);
}

TEST_F(CudaDevices, ThatFailAreNamedWithTheirLastWork) {
  for (const auto& [machine, code, advice] :
       {std::tuple{"devices=2 fail_for_good=cudaStreamSynchronize:1:214", ExitCode::kResource, "hardware has failed"},
        std::tuple{"devices=2 fail_for_good=cudaStreamSynchronize:1:700", ExitCode::kBug, "illegal memory access"}}) {
    ashlar_stand_in_reset(machine);
    Device device({.ordinal = 1});
    const std::unique_ptr<Stream> stream = device.make_stream();
    float host[4] = {};
    void* const block = device.allocator(MemoryKind::kActivations).allocate(sizeof(host));
    device.copy(block, host, sizeof(host), *stream);
    gemm_epilogue({.c = {block, DType::kFloat32, 1, 4, 4}}, *stream);
    std::string text;
    ExitCode seen = ExitCode::kDone;
    try {
      stream->synchronize();
    } catch (const Error& error) {
      text = error.what();
      seen = error.code();
    } catch (const Bug& bug) {
      text = bug.what();
      seen = ExitCode::kBug;
    }
    EXPECT_EQ(seen, code);
    EXPECT_THAT(text, AllOf(HasSubstr("cudaStreamSynchronize"), HasSubstr("device 1 (Ashlar Stand-In, GPU-"),
                            HasSubstr("last queued work: gemm_epilogue, copy"), HasSubstr(advice)));
  }
}

TEST_F(CudaDevices, RunTheKernelsThatNvccMade) {
  ashlar_stand_in_reset("");
  Device device({});
  const std::unique_ptr<Stream> stream = device.make_stream();
  Allocator& memory = device.allocator(MemoryKind::kActivations);
  constexpr int64_t kRows = 3, kCols = 70;
  std::vector<float> sums(kRows * kCols), bias(kCols), result(kRows * kCols);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = 0.25F * static_cast<float>(i);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = -2.0F * static_cast<float>(i);
  const auto on_device = [&](const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    void* const block = memory.allocate(bytes);
    device.copy(block, values.data(), bytes, *stream);
    return block;
  };
  const MutView a = {on_device(sums), DType::kFloat32, kRows, kCols, kCols};
  const MutView b = {on_device(bias), DType::kFloat32, 1, kCols, kCols};
  const MutView c = {on_device(sums), DType::kFloat32, kRows, kCols, kCols};
  gemm_epilogue({.sums = a, .bias = b, .c = c, .accumulate = true}, *stream);
  device.copy(result.data(), c.data, kRows * kCols * 4, *stream);
  for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], 2 * sums[i] + bias[i % kCols]) << i;

  std::vector<float> count(1, 0);
  auto* const differences = static_cast<uint32_t*>(on_device(count));
  count_differences(a.data, c.data, kRows * kCols * 4, differences, *stream);
  device.copy(count.data(), differences, 4, *stream);
  int expected = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const auto x = std::bit_cast<uint32_t>(sums[i]), y = std::bit_cast<uint32_t>(result[i]);
    expected += ((x ^ y) & 0xFFFF) != 0 ? 1 : 0;
    expected += ((x ^ y) >> 16) != 0 ? 1 : 0;
  }
  EXPECT_EQ(std::bit_cast<uint32_t>(count[0]), expected);
  EXPECT_EQ(ashlar_stand_in_calls("cudaLaunchKernelExC"), 2);
}

/// A block that one stream fills from pinned memory and another one reads, with the device's own events between them.
TEST_F(CudaDevices, OrderTheirStreamsByEvents) {
  for (const bool waits : {true, false}) {
    for (int seed = 1; seed <= 8; ++seed) {
      ashlar_stand_in_reset(str_cat("seed=", seed).c_str());
      Device device({});
      const std::unique_ptr<Stream> fills = device.make_stream(), reads = device.make_stream();
      const std::unique_ptr<Event> filled = device.make_event();
      auto* const from = static_cast<int64_t*>(device.allocator(MemoryKind::kPinned).allocate(sizeof(int64_t)));
      auto* const to = static_cast<int64_t*>(device.allocator(MemoryKind::kPinned).allocate(sizeof(int64_t)));
      void* const block = device.allocator(MemoryKind::kActivations).allocate(sizeof(int64_t));
      *from = 7, *to = 0;
      device.copy(block, from, sizeof(int64_t), *fills);
      fills->record(*filled);
      if (waits) reads->wait_for(*filled);
      if (!waits) {
        EXPECT_THROW(
            {
              device.copy(to, block, sizeof(int64_t), *reads);
              reads->synchronize();
            },
            Bug);
        EXPECT_THAT(ashlar_stand_in_fault(), HasSubstr("orders them"));
        continue;
      }
      device.copy(to, block, sizeof(int64_t), *reads);
      const std::unique_ptr<Event> read = device.make_event();
      reads->record(*read);
      read->synchronize();
      EXPECT_EQ(*to, 7);
      EXPECT_TRUE(filled->reached());
      EXPECT_STREQ(ashlar_stand_in_fault(), "");
    }
  }
}

TEST_F(CudaDevices, KeepAStreamsScratchUntilItsWorkIsDone) {
  ashlar_stand_in_reset("");
  Device device({});
  std::unique_ptr<Stream> one = device.make_stream();
  const std::unique_ptr<Stream> other = device.make_stream(), last = device.make_stream();
  void* const from = device.allocator(MemoryKind::kPinned).allocate(256);
  void* const first = device.scratch(*one, 256);
  EXPECT_EQ(device.scratch(*one, 100), first);
  device.copy(first, from, 256, *one);
  EXPECT_NE(device.scratch(*one, int64_t{40} << 20), first);  // of another slab
  void* const again = device.scratch(*other, 256);
  EXPECT_EQ(again, first);
  device.copy(again, from, 256, *other);
  other->synchronize();
  // Nor does it go to others while the work of a stream that is gone uses it.
  void* const large = device.scratch(*one, 1);
  device.copy(large, from, 256, *one);
  one.reset();
  EXPECT_EQ(device.scratch(*last, int64_t{40} << 20), large);
  device.copy(large, from, 256, *last);
  last->synchronize();
  EXPECT_STREQ(ashlar_stand_in_fault(), "");
}

TEST_F(CudaDevices, FailWhereAKernelTouchesWhatIsNotTheDevices) {
  ashlar_stand_in_reset("");
  Device device({});
  const std::unique_ptr<Stream> stream = device.make_stream();
  std::vector<float> host(4);
  gemm_epilogue({.c = {host.data(), DType::kFloat32, 1, 4, 4}}, *stream);
  try {
    stream->synchronize();
    FAIL() << "memory of the host";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(), AllOf(HasSubstr("cudaStreamSynchronize"), HasSubstr("last queued work: gemm_epilogue")));
  }
  EXPECT_THAT(ashlar_stand_in_fault(), AllOf(HasSubstr("finish_gemm_kernel"), HasSubstr("thread")));
}

}  // namespace
}  // namespace ashlar::cuda
