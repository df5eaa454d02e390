#include "kernels/cuda/gemm/cublaslt.h"

#include "core/base/error.h"

namespace ashlar::cuda {

namespace {

constexpr size_t kOldest = 120000;
// A library of CUDA 13 does not start on the drivers for which a program is built with CUDA 12.
#if CUDART_VERSION >= 13000
const std::vector<std::string> kSonames = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr const char* kHowToGet =
    "install CUDA's cublas (package libcublas-13-0), or pip install nvidia-cublas and set ASHLAR_CUBLASLT to the path "
    "of its libcublasLt.so.13";
#else
const std::vector<std::string> kSonames = {"libcublasLt.so.12"};
constexpr const char* kHowToGet =
    "install CUDA's cublas (package libcublas-12-8), or pip install nvidia-cublas-cu12 and set ASHLAR_CUBLASLT to the "
    "path of its libcublasLt.so.12";
#endif

}  // namespace

CublasLt::CublasLt()
    : library_({.name = "cublasLt",
                .sonames = kSonames,
                .variable = "ASHLAR_CUBLASLT",
                .folders = cuda_library_folders(CUDART_VERSION / 1000),
                .how_to_get = kHowToGet},
               "run.device") {
#define ASHLAR_FIND(member, name) member = library_.function<std::remove_pointer_t<decltype(&name)>>(#name);
  ASHLAR_CUBLASLT(ASHLAR_FIND)
#undef ASHLAR_FIND
  const size_t version = get_version();
  version_ = str_cat("cublasLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  if (version < kOldest)
    throw input_error("run.device", "expected cublasLt 12.0 or newer, but ", library_.path(), " is ", version_, "; ",
                      kHowToGet);
}

void CublasLt::check(cublasStatus_t status, const std::string& what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = str_cat(what, ": ", status_name(status), " of ", version_, " (", path(), ")");
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    throw resource_error("cuda", text, "; choose a smaller train.micro_batch or model");
  throw Bug(str_cat("[cuda] ", text));
}

}  // namespace ashlar::cuda
