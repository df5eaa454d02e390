#include "launch/packaging/bundled_mpi.h"

#include <link.h>

#include <cstdlib>
#include <string_view>
#include <system_error>

namespace ashlar::packaging {

namespace fs = std::filesystem;

namespace {

int keep_mpi_library(dl_phdr_info* library, size_t, void* found) {
  const std::string_view path = library->dlpi_name;
  if (path.find("/libmpi.so") == std::string_view::npos) return 0;
  *static_cast<fs::path*>(found) = path;
  return 1;
}

}  // namespace

fs::path bundled_mpi() {
  fs::path library;
  dl_iterate_phdr(keep_mpi_library, &library);
  std::error_code none;  // ignored: then there is no archive
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  fs::path folder = program.parent_path().parent_path() / "mpi";
  const bool ours = !library.empty() && fs::exists(folder / "bin/mpirun", none) &&
                    fs::equivalent(library.parent_path(), folder / "lib", none);
  return ours ? folder : fs::path();
}

void use_bundled_mpi() {
  const fs::path folder = bundled_mpi();
  if (folder.empty()) return;
  setenv("OPAL_PREFIX", folder.c_str(), 1);
  // Its libraries PMIx and hwloc would load the machine's plugins, which are of other versions; they need none.
  setenv("PMIX_MCA_mca_base_component_disable_dlopen", "1", 1);
  setenv("PMIX_MCA_pcompress_base_silence_warning", "1", 1);
  setenv("HWLOC_PLUGINS_PATH", (folder / "lib").c_str(), 1);
}

}  // namespace ashlar::packaging
