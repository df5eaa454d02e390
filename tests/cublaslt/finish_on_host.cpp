// The two kernels of gemm_epilogue.cu by the host, as work of the stand-in's device, and the calls by which kernels are
// launched, which nobody makes here. The kernels themselves are tested on the emulator.
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "core/base/bf16.h"
#include "kernels/cuda/gemm/gemm_epilogue.h"
#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar::cuda {

namespace {

using Job = std::function<void()>;
void enqueue(Stream& stream, const char* name, Job job) {
  const auto step = [](void* data) {
    const std::unique_ptr<Job> owner(static_cast<Job*>(data));
    (*owner)();
    return true;
  };
  ashlar_stand_in_enqueue(static_cast<cudaStream_t>(stream.native()), step, new Job(std::move(job)), name);
}

double load(const ConstView& v, int64_t r, int64_t c) {
  const int64_t i = r * v.stride + c;
  switch (v.dtype) {
    case DType::kFloat64: return static_cast<const double*>(v.data)[i];
    case DType::kFloat32: return static_cast<const float*>(v.data)[i];
    default: return static_cast<float>(static_cast<const BF16*>(v.data)[i]);
  }
}
void store(const MutView& v, int64_t r, int64_t c, double value) {
  const int64_t i = r * v.stride + c;
  switch (v.dtype) {
    case DType::kFloat64: static_cast<double*>(v.data)[i] = value; return;
    case DType::kFloat32: static_cast<float*>(v.data)[i] = static_cast<float>(value); return;
    default: static_cast<BF16*>(v.data)[i] = BF16(static_cast<float>(value)); return;
  }
}

}  // namespace

void gemm_epilogue(const GemmEpilogue& args, Stream& stream) {
  enqueue(stream, "gemm_epilogue", [args] {
    for (int64_t r = 0; r < args.c.rows; ++r) {
      for (int64_t c = 0; c < args.c.cols; ++c) {
        double value = args.sums ? load(args.sums, r, c) : 0;
        if (args.bias) value += load(args.bias, 0, c);
        if (args.accumulate) value += load(args.c, r, c);
        store(args.c, r, c, value);
      }
    }
  });
}

void count_differences(const void* a, const void* b, int64_t bytes, uint32_t* count, Stream& stream) {
  enqueue(stream, "count_differences", [=] {
    for (int64_t i = 0; i < bytes / 2; ++i)
      *count += static_cast<const uint16_t*>(a)[i] != static_cast<const uint16_t*>(b)[i] ? 1 : 0;
  });
}

}  // namespace ashlar::cuda

extern "C" {
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* /*config*/, const void* /*kernel*/, void** /*arguments*/) {
  return cudaErrorNotSupported;
}
cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*attribute*/, int /*value*/) {
  return cudaErrorNotSupported;
}
}
