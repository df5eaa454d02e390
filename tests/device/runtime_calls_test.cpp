// The stand-in for the CUDA runtime: what its documents say, and what they refuse.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = 256;

/// A fresh runtime with two streams, two blocks of the device and one of pinned memory.
class Runtime : public ::testing::Test {
 protected:
  Runtime() { start(""); }
  ~Runtime() override { ashlar_stand_in_reset(""); }

  void start(const std::string& options) {
    ashlar_stand_in_reset(options.c_str());
    if (cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) != cudaSuccess) return;
    EXPECT_EQ(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&x, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&y, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(&pinned, kBytes), cudaSuccess);
  }

  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  void *x = nullptr, *y = nullptr, *pinned = nullptr;
};

TEST_F(Runtime, CopiesAndSetsInTheOrderOfAStream) {
  std::vector<char> host(kBytes, 3), back(kBytes, 0);
  EXPECT_EQ(cudaMemcpyAsync(x, host.data(), kBytes, cudaMemcpyHostToDevice, a), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 7, 16, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, y, kBytes, cudaMemcpyDeviceToHost, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  std::fill_n(host.begin(), 16, 7);
  EXPECT_EQ(std::memcmp(pinned, host.data(), kBytes), 0);
  EXPECT_EQ(cudaMemcpy(back.data(), y, kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, host);
}

TEST_F(Runtime, RunsNothingBeforeSomebodyWaits) {
  std::memset(pinned, 1, kBytes);
  EXPECT_EQ(cudaMemsetAsync(x, 0, kBytes, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, x, kBytes, cudaMemcpyDeviceToHost, a), cudaSuccess);
  EXPECT_EQ(static_cast<const unsigned char*>(pinned)[0], 0xFF);  // NaN for those who do not wait
  while (cudaStreamQuery(a) == cudaErrorNotReady) continue;
  EXPECT_EQ(static_cast<const char*>(pinned)[0], 0);
}

TEST_F(Runtime, OrdersStreamsByEvents) {
  for (int seed = 1; seed <= 10; ++seed) {
    start("seed=" + std::to_string(seed));
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "never recorded";
    EXPECT_EQ(cudaMemsetAsync(x, 5, kBytes, a), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(pinned, x, kBytes, cudaMemcpyDeviceToHost, b), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, b), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(static_cast<const char*>(pinned)[0], 5) << seed;
  }
}

TEST_F(Runtime, FailsWhereNothingOrdersTwoCalls) {
  EXPECT_EQ(cudaMemsetAsync(x, 5, kBytes, a), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 6, kBytes, b), cudaErrorLaunchFailure);
  EXPECT_THAT(ashlar_stand_in_fault(), AllOf(HasSubstr("memset (call 1"), HasSubstr("memset (call 2")));
}

TEST_F(Runtime, TellsTheTimeOfEventsThatKeepIt) {
  cudaEvent_t start = nullptr, end = nullptr;
  float milliseconds = -1;
  EXPECT_EQ(cudaEventCreate(&start), cudaSuccess);
  EXPECT_EQ(cudaEventCreate(&end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle) << "never recorded";
  EXPECT_EQ(cudaEventRecord(start, a), cudaSuccess);
  const auto pause = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  EXPECT_EQ(cudaLaunchHostFunc(a, pause, nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, a), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 5);
  EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, event), cudaErrorInvalidResourceHandle) << "keeps no time";
}

TEST_F(Runtime, KeepsTheNullStreamInOrderWithBlockingStreamsOnly) {
  cudaStream_t blocking = nullptr;
  EXPECT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 5, kBytes, blocking), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 6, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, x, kBytes, cudaMemcpyDeviceToHost, blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_EQ(static_cast<const char*>(pinned)[0], 6);
  EXPECT_EQ(cudaMemsetAsync(x, 7, kBytes, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x, 8, kBytes, a), cudaErrorLaunchFailure) << "nothing orders it";
}

TEST_F(Runtime, RefusesHandlesThatAreNone) {
  EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemsetAsync(x, 0, 1, a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, b), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(x)), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "told once";
}

TEST_F(Runtime, RefusesMemoryOfTheWrongKind) {
  std::vector<char> host(kBytes);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, kBytes, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(pinned, 0, kBytes, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x, 0, kBytes + 1, a), cudaErrorInvalidValue) << "beyond the block";
  EXPECT_EQ(cudaMemcpyAsync(x, y, kBytes, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x, host.data(), kBytes, cudaMemcpyDeviceToDevice, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), x, kBytes + 1, cudaMemcpyDefault, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x, nullptr, kBytes, cudaMemcpyDefault, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(static_cast<char*>(x) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(x), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(x, 0, 1, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(Runtime, KnowsWhosePointersAre) {
  std::vector<char> host(1);
  cudaPointerAttributes of{};
  EXPECT_EQ(cudaPointerGetAttributes(&of, static_cast<char*>(x) + 5), cudaSuccess);
  EXPECT_EQ(of.type, cudaMemoryTypeDevice);
  EXPECT_EQ(of.device, 0);
  EXPECT_EQ(cudaPointerGetAttributes(&of, pinned), cudaSuccess);
  EXPECT_EQ(of.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaPointerGetAttributes(&of, host.data()), cudaSuccess);
  EXPECT_EQ(of.type, cudaMemoryTypeUnregistered);
}

TEST_F(Runtime, CallsHostFunctionsThatMayNotCallIt) {
  struct Seen {
    cudaStream_t stream;
    cudaError_t error = cudaSuccess;
    int calls = 0;
  } seen{a};
  const auto function = [](void* data) {
    auto* const s = static_cast<Seen*>(data);
    s->error = cudaStreamQuery(s->stream);
    ++s->calls;
  };
  EXPECT_EQ(cudaLaunchHostFunc(a, function, &seen), cudaSuccess);
  EXPECT_EQ(seen.calls, 0);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
}

TEST_F(Runtime, StaysFailedOnceWorkHasFailed) {
  ashlar_stand_in_enqueue(
      a, [](void*) -> bool { throw std::runtime_error("lost its peer"); }, nullptr, "reduce");
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
  EXPECT_THAT(ashlar_stand_in_fault(), HasSubstr("lost its peer"));
  EXPECT_EQ(cudaMalloc(&x, 1), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure) << "cannot be taken away";
}

TEST_F(Runtime, AsksStepsAgainAndNamesThoseThatNeverEnd) {
  start("patience=0.05");
  int more = 4;
  ashlar_stand_in_enqueue(
      a, [](void* left) { return --*static_cast<int*>(left) == 0; }, &more, "counts");
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(more, 0);
  ashlar_stand_in_enqueue(
      a, [](void*) { return false; }, nullptr, "waits");
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
  EXPECT_THAT(ashlar_stand_in_fault(), HasSubstr("waits (call 2 on stream 0)"));
}

TEST_F(Runtime, HoldsStepsToWhatTheySayTheyTouch) {
  ashlar_stand_in_enqueue(
      a, [](void*) { return true; }, nullptr, "reduce");
  ashlar_stand_in_touch(x, kBytes, true);
  EXPECT_EQ(cudaMemcpyAsync(pinned, x, kBytes, cudaMemcpyDeviceToHost, b), cudaErrorLaunchFailure);
  EXPECT_THAT(ashlar_stand_in_fault(), AllOf(HasSubstr("reduce (call 1"), HasSubstr("copy (call 2")));
}

TEST_F(Runtime, HasNoMoreMemoryThanItSays) {
  start("memory_mib=300 context_mib=256");
  size_t free_bytes = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  EXPECT_EQ(total, size_t{300} << 20);
  EXPECT_EQ(free_bytes, (size_t{44} << 20) - 2 * kBytes);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, size_t{45} << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaMalloc(&more, size_t{40} << 20), cudaSuccess) << "out of memory is no failure of the device";
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(Runtime, HasTheDevicesItSays) {
  start("devices=2 capability=80");
  int count = 0, ordinal = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&ordinal), cudaSuccess);
  EXPECT_EQ(ordinal, 1);
  cudaDeviceProp first{}, second{};
  EXPECT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof(first.uuid)), 0);
  EXPECT_EQ(first.major * 10 + first.minor, 80);
  start("devices=2 same_uuid=1");
  EXPECT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_EQ(std::memcmp(&first.uuid, &second.uuid, sizeof(first.uuid)), 0);
}

TEST_F(Runtime, NeedsADriverAndADevice) {
  int value = -1;
  start("driver=0");
  EXPECT_EQ(cudaDriverGetVersion(&value), cudaSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorInsufficientDriver);
  start("driver=12040");
  EXPECT_EQ(cudaMalloc(&x, 1), cudaErrorInsufficientDriver);
  start("devices=0");
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorNoDevice);
}

TEST_F(Runtime, FailsWhereATestAsks) {
  start("fail=cudaStreamSynchronize:2:214");
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  start("fail_for_good=cudaStreamSynchronize:1:214");
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorECCUncorrectable);
}

TEST_F(Runtime, CountsCallsAndWaits) {
  EXPECT_EQ(ashlar_stand_in_calls("cudaMalloc"), 2);
  EXPECT_EQ(ashlar_stand_in_host_waits(), 0);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(ashlar_stand_in_host_waits(), 0) << "there was nothing to wait for";
  EXPECT_EQ(cudaMemsetAsync(x, 0, 1, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(ashlar_stand_in_host_waits(), 1);
}

TEST_F(Runtime, EndsAHostThatTouchesDeviceMemory) {
  EXPECT_DEATH(static_cast<volatile char*>(x)[3] = 1, "the host touches byte 3 of block 1");
}

}  // namespace
}  // namespace ashlar
