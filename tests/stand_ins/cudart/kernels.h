#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/ptx/program.h"

namespace ashlar::stand_in {

/// The device code of one of the process's files, as nvcc put it into the program: binaries for some devices, and PTX.
struct Image {
  const void* fat_binary = nullptr;
  std::unique_ptr<ptx::Program> program;  ///< from its PTX, when one of its kernels is first launched
};

/// A kernel that nvcc's host code made known.
struct Kernel {
  Image* image = nullptr;
  std::string mangled_name;
  std::string name;  ///< as in the source, for errors
  int max_shared_bytes = 48 << 10;
  const ptx::Function* function = nullptr;  ///< of the image's program
};

/// All kernels of the process: they are made known before `main`, and stay when the runtime starts over.
class Kernels {
 public:
  Image* add_image(const void* fat_binary);
  void add(Image* image, const void* host_function, const char* mangled_name);
  /// Null for an address that is no kernel's.
  Kernel* find(const void* host_function);
  /// Reads its PTX where that was not done. Throws input_error where there is none.
  static void load(Kernel& kernel);

 private:
  std::vector<std::unique_ptr<Image>> images_;
  std::map<const void*, Kernel> kernels_;
};

/// The process's.
Kernels& kernels();

}  // namespace ashlar::stand_in
