// What a user is told who has no cublasLt, or one that does not serve.
#include <gmock/gmock.h>

#include <string>

#include "core/base/error.h"
#include "tests/cublaslt/on_device.h"

namespace ashlar::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of_loading() {
  try {
    const CublasLt library;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    return error.what();
  }
  return "no error";
}

TEST_F(CublasLtTest, AMissingLibraryIsNamedWithHowToGetIt) {
  setenv("ASHLAR_CUBLASLT", "/no/such/libcublasLt.so.13", 1);
  EXPECT_THAT(error_of_loading(), AllOf(HasSubstr("[run.device] expected the library cublasLt, found none"),
                                        HasSubstr("/no/such/libcublasLt.so.13"), HasSubstr("nvidia-cublas")));
  reset_library("");
  EXPECT_EQ(error_of_loading(), "no error");
}

TEST_F(CublasLtTest, AnOldLibraryIsRefused) {
  reset_library("version=111103");
  EXPECT_THAT(error_of_loading(), AllOf(HasSubstr("expected cublasLt 12.0 or newer"), HasSubstr("cublasLt 11.11.3")));
}

TEST_F(CublasLtTest, SaysVersionAndFile) {
  const CublasLt library;
  EXPECT_EQ(library.version(), "cublasLt 13.1.0");
  EXPECT_THAT(library.path(), HasSubstr("stand_in_cublaslt"));
  EXPECT_NO_THROW(library.check(CUBLAS_STATUS_SUCCESS, "x"));
  EXPECT_THROW(library.check(CUBLAS_STATUS_ALLOC_FAILED, "x"), Error);
  EXPECT_THROW(library.check(CUBLAS_STATUS_EXECUTION_FAILED, "x"), Bug);
}

}  // namespace
}  // namespace ashlar::cuda
