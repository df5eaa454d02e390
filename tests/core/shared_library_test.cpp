#include "core/device/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/base/error.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const SharedLibrary::Place& place) {
  try {
    const SharedLibrary library(place, "run.device");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    return e.what();
  }
  return "no error";
}

const SharedLibrary::Place kMath{.name = "the library of functions",
                                 .sonames = {"libnothing_of_this_name.so.9", "libm.so.6"},
                                 .variable = "ASHLAR_TEST_LIBRARY",
                                 .folders = {},
                                 .how_to_get = "install the package libc6"};

TEST(SharedLibrary, TakesTheFirstThatLoads) {
  const SharedLibrary library(kMath, "run.device");
  EXPECT_THAT(library.path(), HasSubstr("libm.so.6"));
  EXPECT_EQ(library.function<double(double)>("sqrt")(9.0), 3.0);
  EXPECT_EQ(library.optional_function<void()>("no_function_of_this_name"), nullptr);
}

TEST(SharedLibrary, NamesWhatWasTriedAndHowToGetIt) {
  SharedLibrary::Place place = kMath;
  place.sonames = {"libnothing_of_this_name.so.9"};
  place.folders = {"/no/such/folder"};
  EXPECT_THAT(error_of(place), AllOf(HasSubstr("[run.device] expected the library the library of functions"),
                                     HasSubstr("libnothing_of_this_name.so.9 ("),
                                     HasSubstr("/no/such/folder/libnothing_of_this_name.so.9 ("),
                                     HasSubstr("install the package libc6, or set its path in ASHLAR_TEST_LIBRARY")));
}

TEST(SharedLibrary, TheVariableOfTheEnvironmentWinsAlone) {
  setenv("ASHLAR_TEST_LIBRARY", "/no/such/file.so", 1);
  const std::string error = error_of(kMath);
  unsetenv("ASHLAR_TEST_LIBRARY");
  EXPECT_THAT(error, AllOf(HasSubstr("found none: /no/such/file.so ("), ::testing::Not(HasSubstr("libm.so.6"))));
}

TEST(SharedLibrary, AMissingFunctionNamesLibraryAndFile) {
  const SharedLibrary library(kMath, "run.device");
  try {
    library.function<void()>("no_function_of_this_name");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("no_function_of_this_name"), HasSubstr("libm.so.6"), HasSubstr("version")));
  }
}

TEST(SharedLibrary, FoldersOfCudaBeginWithTheUsersOwn) {
  const char* const before = std::getenv("CUDA_HOME");
  const std::string kept = before != nullptr ? before : "";
  setenv("CUDA_HOME", "/opt/mine", 1);
  EXPECT_THAT(cuda_library_folders(), ::testing::ElementsAre("/opt/mine/lib64", "/usr/local/cuda/lib64"));
  before != nullptr ? setenv("CUDA_HOME", kept.c_str(), 1) : unsetenv("CUDA_HOME");
}

}  // namespace
}  // namespace ashlar
