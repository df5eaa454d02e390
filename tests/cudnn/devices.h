#pragma once

#include <string>

namespace ashlar::testing {

/// A GPU in cuDNN's own words (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; a flag is a number).
struct DescribedGpu {
  int sm;
  std::string json;
};

inline DescribedGpu described_gpu(int sm, const std::string& name, int processors, int64_t shared_bytes,
                                  int64_t l2_bytes) {
  return {sm, R"({"cudnnVersion":91900,"deviceName":")" + name + R"(","cudaDeviceId":0,"deviceVer":)" +
                  std::to_string(sm * 10) +
                  R"(,"driverVer":13000,"totalGlobalMem":85045149696,"maxGridSize":[2147483647,65535,65535],)"
                  R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)" +
                  std::to_string(processors) +
                  R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)" +
                  std::to_string(shared_bytes) +
                  R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
                  R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
                  R"("supportCoopLaunch":1,"smClockRateKHz":1500000,"memClockRateKHz":2000000,"l2CacheSize":)" +
                  std::to_string(l2_bytes) + "}"};
}
inline DescribedGpu h100() { return described_gpu(90, "NVIDIA H100 80GB HBM3", 132, 232448, 52428800); }
inline DescribedGpu a100() { return described_gpu(80, "NVIDIA A100-SXM4-80GB", 108, 166912, 41943040); }

}  // namespace ashlar::testing
