// The stand-in against the vendor's library, in all that it answers without a GPU: sizes, defaults, status codes.
#include <gmock/gmock.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/cublaslt/on_device.h"

namespace ashlar::cuda {
namespace {

SharedLibrary open(const std::string& file) {
  return SharedLibrary(
      {.name = "cublasLt", .sonames = {file}, .variable = "", .folders = cuda_library_folders(), .how_to_get = ""},
      "test");
}

/// The functions that answer without a GPU, of one library.
struct Answers {
  explicit Answers(const std::string& file) : library(open(file)) {}

  template <typename Opaque, typename Attribute>
  std::string attribute(const char* name, Opaque& object, int attribute) const {
    auto* const get = library.function<cublasStatus_t(Opaque*, Attribute, void*, size_t, size_t*)>(name);
    size_t size = 0, written = 0;
    const cublasStatus_t asked = get(&object, static_cast<Attribute>(attribute), nullptr, 0, &size);
    if (asked != CUBLAS_STATUS_SUCCESS) return str_cat("status ", asked);
    std::vector<unsigned char> value(size);
    const cublasStatus_t got = get(&object, static_cast<Attribute>(attribute), value.data(), size, &written);
    const cublasStatus_t larger = get(&object, static_cast<Attribute>(attribute), value.data(), size + 1, &written);
    const cublasStatus_t nowhere = get(&object, static_cast<Attribute>(attribute), nullptr, size, nullptr);
    std::string text = str_cat("size ", size, " got ", got, " larger ", larger, " nowhere ", nowhere, " value");
    for (const unsigned char byte : value) text += str_cat(" ", static_cast<int>(byte));
    return text;
  }

  SharedLibrary library;
};

class Vendor : public CublasLtTest {
 protected:
  void SetUp() override {
    CublasLtTest::SetUp();
    try {
      vendor_.emplace("libcublasLt.so.13");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    own_.emplace(ASHLAR_STAND_IN_CUBLASLT);
  }

  std::optional<Answers> vendor_, own_;
};

// Of the attributes that the stand-in has; it answers no others.
TEST_F(Vendor, LayoutsHaveItsSizesAndDefaults) {
  const auto of = [](const Answers& answers, int attribute) {
    cublasLtMatrixLayoutOpaque_t layout{};
    auto* const init =
        answers.library.function<decltype(cublasLtMatrixLayoutInit_internal)>("cublasLtMatrixLayoutInit_internal");
    EXPECT_EQ(init(&layout, sizeof(layout), CUDA_R_16BF, 24, 17, 31), CUBLAS_STATUS_SUCCESS);
    return answers.attribute<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutAttribute_t>(
        "cublasLtMatrixLayoutGetAttribute", layout, attribute);
  };
  for (int attribute = CUBLASLT_MATRIX_LAYOUT_TYPE; attribute <= CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET; ++attribute)
    EXPECT_EQ(of(*own_, attribute), of(*vendor_, attribute)) << attribute;
  EXPECT_EQ(of(*own_, 99), of(*vendor_, 99));
}

TEST_F(Vendor, DescriptorsHaveItsSizesAndDefaults) {
  const auto of = [](const Answers& answers, int attribute) {
    cublasLtMatmulDescOpaque_t desc{};
    auto* const init =
        answers.library.function<decltype(cublasLtMatmulDescInit_internal)>("cublasLtMatmulDescInit_internal");
    EXPECT_EQ(init(&desc, sizeof(desc), CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    return answers.attribute<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescAttributes_t>(
        "cublasLtMatmulDescGetAttribute", desc, attribute);
  };
  for (const int attribute : {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 22, 25, 26})
    EXPECT_EQ(of(*own_, attribute), of(*vendor_, attribute)) << attribute;
  for (const int attribute : {9, 27, 99}) EXPECT_EQ(of(*own_, attribute), of(*vendor_, attribute)) << attribute;
}

TEST_F(Vendor, PreferencesHaveItsSizesAndDefaults) {
  const auto of = [](const Answers& answers, int attribute) {
    cublasLtMatmulPreferenceOpaque_t preference{};
    auto* const init = answers.library.function<decltype(cublasLtMatmulPreferenceInit_internal)>(
        "cublasLtMatmulPreferenceInit_internal");
    EXPECT_EQ(init(&preference, sizeof(preference)), CUBLAS_STATUS_SUCCESS);
    return answers.attribute<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceAttributes_t>(
        "cublasLtMatmulPreferenceGetAttribute", preference, attribute);
  };
  for (int attribute = 0; attribute < 14; ++attribute)
    EXPECT_EQ(of(*own_, attribute), of(*vendor_, attribute)) << attribute;
}

// Neither looks at what a descriptor says until a product is asked for; both look at sizes and null pointers.
TEST_F(Vendor, DescriptorsTakeAndRefuseTheSame) {
  const auto of = [](const Answers& answers) {
    const SharedLibrary& library = answers.library;
    auto* const layout_init =
        library.function<decltype(cublasLtMatrixLayoutInit_internal)>("cublasLtMatrixLayoutInit_internal");
    auto* const desc_init =
        library.function<decltype(cublasLtMatmulDescInit_internal)>("cublasLtMatmulDescInit_internal");
    auto* const set = library.function<decltype(cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
    cublasLtMatrixLayoutOpaque_t layout{};
    cublasLtMatmulDescOpaque_t desc{};
    std::vector<int> statuses;
    const auto note = [&](cublasStatus_t status) { statuses.push_back(status); };
    note(layout_init(&layout, sizeof(layout), CUDA_R_16BF, 16, 8, 4));  // a leading dimension below the rows
    note(layout_init(&layout, sizeof(layout), CUDA_R_16BF, 16, 8, -16));
    note(layout_init(&layout, sizeof(layout), CUDA_R_16BF, 0, 8, 16));
    note(desc_init(&desc, sizeof(desc), CUBLAS_COMPUTE_32F, CUDA_R_64F));
    const uint32_t epilogue = 12345;
    note(set(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    const int64_t odd = 13;
    note(set(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd, sizeof(odd)));
    note(set(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd, 4));
    note(set(&desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, nullptr, sizeof(odd)));
    note(set(&desc, static_cast<cublasLtMatmulDescAttributes_t>(99), &odd, sizeof(odd)));
    return statuses;
  };
  EXPECT_EQ(of(*own_), of(*vendor_));
}

TEST_F(Vendor, NamesStatusesAlike) {
  for (int status = 0; status < 26; ++status) {
    const auto name = [&](const Answers& answers) {
      return std::string(answers.library.function<decltype(cublasLtGetStatusName)>("cublasLtGetStatusName")(
          static_cast<cublasStatus_t>(status)));
    };
    EXPECT_EQ(name(*own_), name(*vendor_));
  }
}

// The vendor's library finds no driver on a machine without one; the stand-in when it is told so.
TEST_F(Vendor, WithoutADriverNothingIsInitialized) {
  const auto of = [](const Answers& answers) {
    cublasLtHandle_t handle = nullptr;
    return answers.library.function<decltype(cublasLtCreate)>("cublasLtCreate")(&handle);
  };
  const cublasStatus_t status = of(*vendor_);
  if (status == CUBLAS_STATUS_SUCCESS) GTEST_SKIP() << "this machine has a driver";
  ashlar_stand_in_reset("driver=0");
  EXPECT_EQ(of(*own_), status);
  start("", "");
}

// Every function that the product calls is one that the vendor's library has.
TEST_F(Vendor, HasEveryFunctionThatIsCalled) {
#define ASHLAR_EXPECT(member, name) EXPECT_NE(vendor_->library.optional_function<void()>(#name), nullptr) << #name;
  ASHLAR_CUBLASLT(ASHLAR_EXPECT)
#undef ASHLAR_EXPECT
}

}  // namespace
}  // namespace ashlar::cuda
