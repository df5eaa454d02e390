// libcuda.so.1 for machines without a driver: enough of it that libraries which only compile kernels, and load them
// without a launch, find what they ask for. It has no device: what would need one answers CUDA_ERROR_NO_DEVICE.
#include <cstdint>

extern "C" {

enum { kSuccess = 0, kNoDevice = 100, kNotFound = 500 };

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
int cuGetErrorName(int, const char** text) {
  *text = "an error of a driver without a device";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
// What the compiler nvrtc asks of a driver beyond its interface: this one has no such tables.
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}

// Code that is loaded but never launched: any address that is not null names it.
int cuLibraryLoadData(void** library, const void* code, void*, void*, unsigned, void*, void*, unsigned) {
  *library = const_cast<void*>(code);
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }
int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return kSuccess;
}
int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }

// Looked up when a library is loaded, and refused when they are called.
#define NEEDS_A_DEVICE(name) \
  int name() { return kNoDevice; }
NEEDS_A_DEVICE(cuCtxGetCurrent)
NEEDS_A_DEVICE(cuCtxGetLimit)
NEEDS_A_DEVICE(cuCtxPopCurrent)
NEEDS_A_DEVICE(cuCtxPushCurrent)
NEEDS_A_DEVICE(cuDeviceGet)
NEEDS_A_DEVICE(cuKernelGetAttribute)
NEEDS_A_DEVICE(cuLaunchCooperativeKernel)
NEEDS_A_DEVICE(cuLaunchKernel)
NEEDS_A_DEVICE(cuLaunchKernelEx)
NEEDS_A_DEVICE(cuLibraryLoadFromFile)
NEEDS_A_DEVICE(cuLinkAddData)
NEEDS_A_DEVICE(cuLinkComplete)
NEEDS_A_DEVICE(cuLinkCreate)
NEEDS_A_DEVICE(cuLinkDestroy)
NEEDS_A_DEVICE(cuOccupancyMaxPotentialClusterSize)
NEEDS_A_DEVICE(cuStreamGetCtx)

}  // extern "C"
