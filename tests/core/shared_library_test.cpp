#include "core/device/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "tests/support/scratch_dir.h"

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

/// Sets variables of the environment, as they were after the test.
class Environment {
 public:
  void set(const char* name, const std::string& value) {
    const char* const before = std::getenv(name);
    before_.emplace(name, before != nullptr ? std::optional<std::string>(before) : std::nullopt);
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

/// A test whose environment names Python installations in a folder of its own.
class CudaFolders : public ::testing::Test {
 protected:
  CudaFolders() {
    environment_.set("CUDA_HOME", "/opt/mine");
    environment_.set("VIRTUAL_ENV", "");
    environment_.set("CONDA_PREFIX", "");
    environment_.set("HOME", path("home"));
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  std::string make(const std::string& name) const {
    std::filesystem::create_directories(path(name));
    return path(name);
  }
  /// The folders that the test made, in the order in which they are searched.
  std::vector<std::string> found(int cuda_major = 13) const {
    std::vector<std::string> folders = cuda_library_folders(cuda_major);
    EXPECT_GE(folders.size(), 2U);
    EXPECT_EQ(folders[0], "/opt/mine/lib64");
    EXPECT_EQ(folders[1], "/usr/local/cuda/lib64");
    std::erase_if(folders, [&](const std::string& folder) { return !folder.starts_with(scratch_.path().string()); });
    return folders;
  }

  const testing::ScratchDir scratch_;
  Environment environment_;
};

TEST_F(CudaFolders, BeginWithTheUsersOwn) { EXPECT_THAT(found(), ::testing::IsEmpty()); }

TEST_F(CudaFolders, AreThoseOfWheelsToo) {
  environment_.set("VIRTUAL_ENV", path("venv"));
  environment_.set("CONDA_PREFIX", path("conda"));
  const std::string own = make("home/.local/lib/python3.11/site-packages/nvidia/cudnn/lib");
  const std::string conda = make("conda/lib/python3.9/site-packages/nvidia/nccl/lib");
  const std::string older = make("venv/lib/python3.9/site-packages/nvidia/cu13/lib");
  const std::string cudnn = make("venv/lib/python3.12/site-packages/nvidia/cudnn/lib");
  const std::string cu13 = make("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
  const std::string cublas = make("venv/lib/python3.12/site-packages/nvidia/cublas/lib");  // of CUDA 12
  make("venv/lib/python2.7/site-packages/nvidia/cu13/lib");
  EXPECT_THAT(found(), ::testing::ElementsAre(cu13, cudnn, older, conda, own));
  EXPECT_THAT(found(12), ::testing::ElementsAre(cublas, cudnn, conda, own));
}

TEST_F(CudaFolders, LibrariesAreLoadedFromThem) {
  environment_.set("VIRTUAL_ENV", path("venv"));
  const std::string folder = make("venv/lib/python3.12/dist-packages/nvidia/cudnn/lib");
  const SharedLibrary math(kMath, "run.device");
  std::filesystem::copy_file(math.path(), folder + "/libof_a_wheel.so.9");
  SharedLibrary::Place place = kMath;
  place.sonames = {"libof_a_wheel.so.9"};
  place.folders = cuda_library_folders();
  EXPECT_EQ(SharedLibrary(place, "run.device").path(), folder + "/libof_a_wheel.so.9");
}

}  // namespace
}  // namespace ashlar
