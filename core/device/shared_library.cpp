#include "core/device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

#include "core/base/error.h"

namespace ashlar {

namespace {

std::string path_of(void* handle, const std::string& tried) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr && *map->l_name != '\0')
    return map->l_name;
  return tried;
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

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> folders;
  const char* const home = std::getenv("CUDA_HOME");
  if (home != nullptr && *home != '\0') folders.push_back(str_cat(home, "/lib64"));
  folders.push_back("/usr/local/cuda/lib64");
  return folders;
}

}  // namespace ashlar
