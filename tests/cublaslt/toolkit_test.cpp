#include <gtest/gtest.h>

namespace {

TEST(CublasLtHeaders, AreThere) {
#if !defined(ASHLAR_STAND_IN_CUBLASLT)
  GTEST_SKIP() << "no CUDA headers (cublasLt.h, cuda_runtime_api.h): products by cublasLt are not tested";
#endif
}

}  // namespace
