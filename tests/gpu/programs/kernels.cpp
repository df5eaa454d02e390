// gpu_kernels: the suites of kernels (tests/kernels/cases), each kernel against its fp64 reference, on the first GPU.
// Takes GoogleTest's options; exit code 1 where a test fails.
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "kernels/make_backend.h"
#include "tests/support/every_backend.h"
#include "tests/support/test_memory.h"

namespace ashlar::test {

std::vector<BackendUnderTest> backends_under_test() {
  return {{.name = "gpu", .bits = "gpu", .bf16_probabilities = true, .make = [] {
             return kernels::make_backend({.device = "cuda"});
           }}};
}

void* allocate_test_memory(int64_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMallocManaged(&block, static_cast<size_t>(bytes > 0 ? bytes : 1), cudaMemAttachGlobal);
  if (status != cudaSuccess) throw Bug(str_cat("[cuda] cudaMallocManaged: ", cudaGetErrorString(status)));
  return block;
}
void release_test_memory(void* block, int64_t /*bytes*/) { cudaFree(block); }

}  // namespace ashlar::test
