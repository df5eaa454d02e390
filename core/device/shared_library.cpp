#include "core/device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/error.h"

namespace ashlar {

namespace {

std::string path_of(void* handle, const std::string& tried) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr && *map->l_name != '\0')
    return map->l_name;
  return tried;
}

/// Returns the folders within `folder` whose names begin with `prefix`, the newest version first.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder, std::string_view prefix) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix) && it->is_directory(error)) found.push_back(it->path());
  }
  const auto longer_or_later = [](const auto& a, const auto& b) {
    const std::string x = a.string(), y = b.string();
    return x.size() != y.size() ? x.size() > y.size() : x > y;
  };
  std::ranges::sort(found, longer_or_later);
  return found;
}

/// Appends the folders of NVIDIA's wheels below a Python installation: PREFIX/lib/python3*/site-packages/nvidia. Wheels
/// of CUDA 12 have a folder for each library.
void add_wheel_folders(const std::filesystem::path& prefix, int cuda_major, std::vector<std::string>& folders) {
  const std::string toolkit = cuda_major == 12 ? "cublas" : str_cat("cu", cuda_major);
  for (const std::filesystem::path& python : folders_in(prefix / "lib", "python3")) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const std::string_view wheel :
           {std::string_view(toolkit), std::string_view("cudnn"), std::string_view("nccl")}) {
        const std::filesystem::path folder = python / packages / "nvidia" / wheel / "lib";
        std::error_code error;
        if (std::filesystem::is_directory(folder, error)) folders.push_back(folder.string());
      }
    }
  }
}

}  // namespace

SharedLibrary::SharedLibrary(const Place& place, std::string_view where)
    : name_(place.name), where_(where), how_to_get_(place.how_to_get) {
  std::vector<std::string> candidates;
  const char* const named = place.variable.empty() ? nullptr : std::getenv(place.variable.c_str());
  if (named != nullptr && *named != '\0') {
    candidates.push_back(named);
  } else {
    candidates = place.sonames;
    for (const std::string& folder : place.folders)
      for (const std::string& soname : place.sonames)
        if (soname.find('/') == std::string::npos) candidates.push_back(str_cat(folder, "/", soname));
  }
  std::string tried;
  for (const std::string& candidate : candidates) {
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ != nullptr) {
      path_ = path_of(handle_, candidate);
      return;
    }
    const char* const error = dlerror();
    tried += str_cat(tried.empty() ? "" : "; ", candidate, " (", error != nullptr ? error : "no reason given", ")");
  }
  throw input_error(where_, "expected the library ", name_, ", found none: ", tried, "; ", how_to_get_,
                    place.variable.empty() ? "" : str_cat(", or set its path in ", place.variable));
}

void* SharedLibrary::find(const char* name) const { return dlsym(handle_, name); }

void* SharedLibrary::symbol(const char* name) const {
  void* const found = find(name);
  if (found == nullptr)
    throw input_error(where_, "expected the function ", name, " in ", name_, ", but ", path_,
                      " is another version without that function; ", how_to_get_);
  return found;
}

SharedLibrary::Place nvml_place() {
  return {.name = "NVML",
          .sonames = {"libnvidia-ml.so.1", "libnvidia-ml.so"},
          .variable = "ASHLAR_NVML",
          .folders = {},
          .how_to_get = "it comes with NVIDIA's driver (package libnvidia-ml1)"};
}

std::vector<std::string> cuda_library_folders(int cuda_major) {
  const auto value_of = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  std::vector<std::string> folders;
  if (const std::string home = value_of("CUDA_HOME"); !home.empty()) folders.push_back(home + "/lib64");
  folders.push_back("/usr/local/cuda/lib64");
  std::vector<std::string> pythons = {value_of("VIRTUAL_ENV"), value_of("CONDA_PREFIX")};
  if (const std::string home = value_of("HOME"); !home.empty()) pythons.push_back(home + "/.local");
  pythons.insert(pythons.end(), {"/usr/local", "/usr"});
  for (const std::string& prefix : pythons)
    if (!prefix.empty()) add_wheel_folders(prefix, cuda_major, folders);
  return folders;
}

}  // namespace ashlar
