// Misbehaves when told to, so that tests/launch can see that a suite with ranks notices: see ranks_test.cpp there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

TEST(Harness, BehavesAsTold) {
  const char* told = std::getenv("ASHLAR_HARNESS");
  comm::Communicator& world = bootstrap().world();
  if (told == nullptr || world.rank() != world.size() - 1) return;
  const std::string what = told;
  if (what == "fail") {
    EXPECT_EQ(1, 2) << "told to fail";
  } else if (what == "throw") {
    throw std::runtime_error("told to throw");
  } else if (what == "die") {
    std::abort();
  } else if (what == "wait alone") {
    SynchronousStream stream;
    world.barrier(stream).wait();
  }
}

}  // namespace
}  // namespace ashlar::testing
