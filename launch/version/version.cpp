#include "launch/version/version.h"

#include <ashlar_commit.h>  // ASHLAR_COMMIT, written by commit.cmake

#include "core/base/strings.h"

namespace ashlar::launch {

std::string_view version() { return ASHLAR_VERSION; }
std::string_view commit() { return ASHLAR_COMMIT; }
std::string_view compilers() { return ASHLAR_COMPILERS; }

std::string version_text() { return str_cat("ashlar ", version(), " (commit ", commit(), "; ", compilers(), ")\n"); }

}  // namespace ashlar::launch
