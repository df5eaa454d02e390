#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ashlar {

/// A vendor's library that is found when the program runs, so that the program starts on machines without it. Stays
/// loaded for the life of the process: libraries of drivers do not survive being unloaded.
class SharedLibrary {
 public:
  /// Where to look, and what to tell a user who does not have it.
  struct Place {
    const char* name;                  ///< for messages: "NCCL"
    std::vector<std::string> sonames;  ///< the first that loads is taken; one with a slash is a path
    /// A variable of the environment that names the file itself; where it is set nothing else is tried. May be empty.
    std::string variable;
    std::vector<std::string> folders;  ///< looked through after the dynamic linker's own places
    std::string how_to_get;            ///< "install the package libnccl2"
  };

  /// Throws input_error of `where` that names each place tried, the linker's answer to each, and how to get it.
  SharedLibrary(const Place& place, std::string_view where);

  /// The function of that name. Throws input_error where the library, being of another version, has none.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  /// The same; null where the library has none.
  template <typename Function>
  Function* optional_function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

  /// The file that was loaded, as the dynamic linker tells it.
  const std::string& path() const { return path_; }

 private:
  void* symbol(const char* name) const;
  void* find(const char* name) const;

  void* handle_ = nullptr;
  std::string name_, where_, path_, how_to_get_;
};

/// Folders where CUDA's libraries lie beside the dynamic linker's own: $CUDA_HOME/lib64 and /usr/local/cuda/lib64.
std::vector<std::string> cuda_library_folders();

}  // namespace ashlar
