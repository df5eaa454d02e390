#include "kernels/cuda/attention/cudnn_functions.h"

// The functions below are hidden, so that cuDNN's own libraries do not bind to them.
#pragma GCC visibility push(hidden)
#include <cudnn.h>
#include <nvrtc.h>
#pragma GCC visibility pop

#include "core/base/error.h"
#include "core/device/shared_library.h"

namespace ashlar::cudnn {

namespace {

// Returns the library to which the C functions below forward their calls; the first call loads the library. The library
// is a static variable, since the C functions have no parameter for state.
const SharedLibrary& library() {
  static const SharedLibrary loaded(
      {.name = "cuDNN",
       .sonames = {"libcudnn.so.9"},
       .variable = "ASHLAR_CUDNN",
       .folders = cuda_library_folders(),
       .how_to_get =
           "install cuDNN 9 for the CUDA of your driver (developer.nvidia.com/cudnn, or launch/scripts/"
           "cuda_toolkit.sh DIR --libraries, or pip install nvidia-cudnn-cu13), or set train.attention = \"own\""},
      "cuDNN");
  return loaded;
}

}  // namespace

void load_library() { library(); }
int64_t library_version() { return static_cast<int64_t>(cudnnGetVersion()); }
const std::string& library_path() { return library().path(); }

}  // namespace ashlar::cudnn

#define ASHLAR_FORWARD(result, name, parameters, arguments)                                 \
  result name parameters {                                                                  \
    static auto* const function = ashlar::cudnn::library().function<decltype(name)>(#name); \
    return function arguments;                                                              \
  }

extern "C" {

ASHLAR_FORWARD(size_t, cudnnGetVersion, (void), ())
ASHLAR_FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
ASHLAR_FORWARD(void, cudnnGetLastErrorString, (char* message, size_t size), (message, size))
ASHLAR_FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
ASHLAR_FORWARD(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
ASHLAR_FORWARD(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
ASHLAR_FORWARD(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))

ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
               (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), (type, descriptor))
ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
               (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void* elements),
               (descriptor, name, type, count, elements))
ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
               (const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* elements),
               (descriptor, name, type, wanted, count, elements))
ASHLAR_FORWARD(cudnnStatus_t, cudnnBackendExecute,
               (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t arrays),
               (handle, plan, arrays))

// Functions that the frontend's convolutions call.
ASHLAR_FORWARD(cudnnStatus_t, cudnnCreateFilterDescriptor, (cudnnFilterDescriptor_t * filter), (filter))
ASHLAR_FORWARD(cudnnStatus_t, cudnnDestroyFilterDescriptor, (cudnnFilterDescriptor_t filter), (filter))
ASHLAR_FORWARD(cudnnStatus_t, cudnnSetFilterNdDescriptor,
               (cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t format, int dims,
                const int sizes[]),
               (filter, type, format, dims, sizes))
ASHLAR_FORWARD(cudnnStatus_t, cudnnReorderFilterAndBias,
               (cudnnHandle_t handle, const cudnnFilterDescriptor_t filter, cudnnReorderType_t reorder,
                const void* from, void* to, int with_bias, const void* bias, void* bias_to),
               (handle, filter, reorder, from, to, with_bias, bias, bias_to))

// Functions with which the frontend compiles its own normalization kernels. Our graphs do not use these kernels, but
// the frontend's code refers to the functions.
#define ASHLAR_NOT_OURS(name, parameters)                                                                     \
  nvrtcResult name parameters {                                                                               \
    ASHLAR_CHECK(false, "expected that the frontend compiles no kernel for attention, got a call of " #name); \
    return NVRTC_ERROR_INTERNAL_ERROR;                                                                        \
  }
ASHLAR_NOT_OURS(nvrtcCreateProgram,
                (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))
ASHLAR_NOT_OURS(nvrtcDestroyProgram, (nvrtcProgram*))
ASHLAR_NOT_OURS(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
ASHLAR_NOT_OURS(nvrtcGetCUBIN, (nvrtcProgram, char*))
ASHLAR_NOT_OURS(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))
ASHLAR_NOT_OURS(nvrtcGetProgramLog, (nvrtcProgram, char*))
ASHLAR_NOT_OURS(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))

}  // extern "C"
