#include <gtest/gtest.h>

namespace ashlar {
namespace {

// The others of this suite are not built without the headers of the CUDA toolkit.
TEST(Toolkit, HasTheRuntimesHeaders) {
#if !__has_include(<cuda_runtime_api.h>)
  GTEST_SKIP() << "no cuda_runtime_api.h; launch/scripts/cuda_toolkit.sh DIR gets it, CUDA_HOME=DIR names it";
#endif
}

}  // namespace
}  // namespace ashlar
