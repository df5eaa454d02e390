// Preloaded into the program under test: a machine that has no library of NVIDIA's, whatever this one has. dlopen finds
// none of libcuda, libcublasLt, libnccl, libcudnn and libnvidia-ml, by name or by path.
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

namespace {

bool is_of_nvidia(const char* path) {
  if (path == nullptr) return false;
  const char* const slash = std::strrchr(path, '/');
  const char* const file = slash != nullptr ? slash + 1 : path;
  for (const char* name : {"libcuda.so", "libcublasLt.so", "libnccl.so", "libcudnn", "libnvidia-ml.so"})
    if (std::strncmp(file, name, std::strlen(name)) == 0) return true;
  return false;
}

}  // namespace

extern "C" void* dlopen(const char* path, int flags) {
  static const auto next = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  // The linker's own error for a file that is not there.
  return next(is_of_nvidia(path) ? "/nowhere/of-nvidia.so" : path, flags);
}
