#include <gtest/gtest.h>

namespace ashlar::ptx {
namespace {

TEST(CudaToolkit, CompilesTheKernels) {
#if !defined(ASHLAR_PTX_DIR)
  GTEST_SKIP()
      << "no nvcc when this was configured: launch/scripts/cuda_toolkit.sh DIR gets one, CUDA_HOME=DIR names it";
#endif
}

}  // namespace
}  // namespace ashlar::ptx
