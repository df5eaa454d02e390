#pragma once

#include "parallel/comm/bootstrap.h"

namespace ashlar::testing {

/// The ranks that a test of a suite with RANKS runs on. GoogleTest makes tests without arguments, hence no argument.
/// A test runs on all ranks at once. The failures of every rank count: they are gathered after each test and reported
/// by rank 0, which alone prints and writes the XML. A test that takes longer than ASHLAR_TEST_SECONDS (default 60, an
/// hour in the long form) is ended with a line from each rank that names the test and the rank's last operation.
comm::Bootstrap& bootstrap();

}  // namespace ashlar::testing
