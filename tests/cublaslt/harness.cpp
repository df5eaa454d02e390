// The stand-in for cublasLt as the code under test finds it, and the memory of the host's matrices.
#include <dlfcn.h>

#include <new>

#include "tests/cublaslt/on_device.h"

namespace ashlar::test {
void* allocate_test_memory(int64_t bytes) { return ::operator new(static_cast<size_t>(bytes), std::align_val_t(256)); }
void release_test_memory(void* block, int64_t /*bytes*/) { ::operator delete(block, std::align_val_t(256)); }
}  // namespace ashlar::test

namespace ashlar::cuda {

namespace {

template <typename Function>
Function* of_stand_in(const char* name) {
  setenv("ASHLAR_CUBLASLT", ASHLAR_STAND_IN_CUBLASLT, 1);
  void* const library = dlopen(ASHLAR_STAND_IN_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Bug(dlerror());
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

void CublasLtTest::reset_library(const std::string& options) {
  of_stand_in<void(const char*)>("ashlar_stand_in_cublaslt_reset")(options.c_str());
}
long CublasLtTest::library_calls(const char* name) {
  return of_stand_in<long(const char*)>("ashlar_stand_in_cublaslt_calls")(name);
}

}  // namespace ashlar::cuda
