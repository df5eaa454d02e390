#include <gtest/gtest.h>

namespace ashlar {
namespace {

// Most of this suite is not built without the CUDA toolkit.
TEST(Toolkit, BuildsTheProgramWithCuda) {
#ifndef ASHLAR_ON_STAND_INS
  GTEST_SKIP() << "no CUDA toolkit; launch/scripts/cuda_toolkit.sh DIR gets it, CUDA_HOME=DIR names it";
#endif
}

}  // namespace
}  // namespace ashlar
