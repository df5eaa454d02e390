#include "core/device/driver_version.h"

#include <optional>

#include "core/base/error.h"
#include "core/device/shared_library.h"

namespace ashlar {

std::string driver_version() {
  std::optional<SharedLibrary> nvml;
  try {
    nvml.emplace(nvml_place(), "driver version");
  } catch (const Error&) {
    return "";  // the caller has an error of its own to report
  }
  auto* const init = nvml->optional_function<int()>("nvmlInit_v2");
  auto* const version = nvml->optional_function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (init == nullptr || version == nullptr || init() != 0) return "";
  char text[81] = {};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
  const bool known = version(text, sizeof(text) - 1) == 0;
  if (auto* const shutdown = nvml->optional_function<int()>("nvmlShutdown")) shutdown();
  return known ? text : "";
}

std::string least_driver_for_cuda(int major) { return major == 13 ? "580" : major == 12 ? "525" : ""; }

}  // namespace ashlar
