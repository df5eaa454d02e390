#pragma once

#include <cublasLt.h>

#include <string>

#include "core/device/shared_library.h"

/// The functions of cublasLt that are used, as FUNCTION(name of the member of CublasLt, name in the library).
#define ASHLAR_CUBLASLT(FUNCTION)                                  \
  FUNCTION(create, cublasLtCreate)                                 \
  FUNCTION(destroy, cublasLtDestroy)                               \
  FUNCTION(get_version, cublasLtGetVersion)                        \
  FUNCTION(status_name, cublasLtGetStatusName)                     \
  FUNCTION(layout_init, cublasLtMatrixLayoutInit_internal)         \
  FUNCTION(desc_init, cublasLtMatmulDescInit_internal)             \
  FUNCTION(desc_set, cublasLtMatmulDescSetAttribute)               \
  FUNCTION(preference_init, cublasLtMatmulPreferenceInit_internal) \
  FUNCTION(preference_set, cublasLtMatmulPreferenceSetAttribute)   \
  FUNCTION(heuristic, cublasLtMatmulAlgoGetHeuristic)              \
  FUNCTION(algo_check, cublasLtMatmulAlgoCheck)                    \
  FUNCTION(matmul, cublasLtMatmul)

namespace ashlar::cuda {

/// The library cublasLt, loaded at run time: from the path in the environment variable ASHLAR_CUBLASLT, or else from
/// the folders of the dynamic linker and of CUDA.
class CublasLt {
 public:
  /// Throws input_error if the library is missing or older than 12.0.
  CublasLt();

#define ASHLAR_MEMBER(member, name) decltype(&name) member = nullptr;
  ASHLAR_CUBLASLT(ASHLAR_MEMBER)
#undef ASHLAR_MEMBER

  const std::string& version() const { return version_; }  ///< "cublasLt 13.1.0"
  const std::string& path() const { return library_.path(); }
  /// Throws if `status` is not success: a resource_error if memory ran out, otherwise a Bug. `what` names the failed
  /// call.
  void check(cublasStatus_t status, const std::string& what) const;

 private:
  SharedLibrary library_;
  std::string version_;
};

}  // namespace ashlar::cuda
