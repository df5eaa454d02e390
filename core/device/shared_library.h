#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// A vendor's library that is loaded at run time, so that the program starts on machines without it. It is never
/// unloaded, since driver libraries do not support that.
class SharedLibrary {
 public:
  /// Files to try, and advice for a user without the library.
  struct Place {
    const char* name;                  ///< for messages: "NCCL"
    std::vector<std::string> sonames;  ///< tried in order; one with a slash is a path
    /// The environment variable that may have the path of the file; if it is set, nothing else is tried. Empty: there
    /// is no such variable.
    std::string variable;
    std::vector<std::string> folders;  ///< searched after the dynamic linker's default folders
    std::string how_to_get;            ///< "install the package libnccl2"
  };

  /// Throws input_error of `where` that lists each place tried, the linker's error for each, and how to get the
  /// library.
  SharedLibrary(const Place& place, std::string_view where);

  /// Returns the function of that name. Throws input_error if this version of the library lacks it.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  /// Returns the function, or null if the library lacks it.
  template <typename Function>
  Function* optional_function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

  /// The loaded file, according to the dynamic linker.
  const std::string& path() const { return path_; }

 private:
  void* symbol(const char* name) const;
  void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string name_, where_, path_, how_to_get_;
};

/// Folders of CUDA's libraries besides the dynamic linker's own: $CUDA_HOME/lib64 and /usr/local/cuda/lib64.
std::vector<std::string> cuda_library_folders();

}  // namespace ashlar
