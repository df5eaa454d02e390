#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// A vendor's library that is loaded at run time, so that the program starts on machines without it. It is never
/// unloaded, since driver libraries do not support that.
class SharedLibrary {
 public:
  /// The files to try, and the advice to the user if none of them can be loaded.
  struct Place {
    const char* name;                  ///< name of the library in messages, e.g. "NCCL"
    std::vector<std::string> sonames;  ///< file names, tried in order; a name with a slash is a path
    /// Name of the environment variable that may contain the path of the library file; empty if there is no such
    /// variable. If the variable is set, nothing else is tried.
    std::string variable;
    std::vector<std::string> folders;  ///< folders to search after the dynamic linker's default folders
    std::string how_to_get;            ///< advice in messages, e.g. "install the package libnccl2"
  };

  /// Loads the library. If no file can be loaded, throws an input_error with the prefix `where` that lists each file
  /// tried, the linker's error for each, and how to get the library.
  SharedLibrary(const Place& place, std::string_view where);

  /// Returns the function with this name. Throws an input_error if this version of the library lacks the function.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  /// Returns the function with this name, or null if the library lacks the function.
  template <typename Function>
  Function* optional_function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

  /// Returns the path of the loaded file as the dynamic linker reports it.
  const std::string& path() const { return path_; }

 private:
  void* symbol(const char* name) const;
  void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string name_, where_, path_, how_to_get_;
};

/// NVML, the library of NVIDIA's driver that tells versions, clocks and power.
SharedLibrary::Place nvml_place();

/// Returns the folders in which CUDA's libraries are searched after the dynamic linker's default folders:
/// $CUDA_HOME/lib64, /usr/local/cuda/lib64, and those of NVIDIA's wheels for Python (nvidia/cu13, or nvidia/cublas for
/// CUDA 12; nvidia/cudnn and nvidia/nccl) that exist below $VIRTUAL_ENV, $CONDA_PREFIX, ~/.local, /usr/local and /usr,
/// in this order.
std::vector<std::string> cuda_library_folders(int cuda_major = 13);

}  // namespace ashlar
