#include "launch/version/version.h"

#include <ashlar_commit.h>  // ASHLAR_COMMIT and ASHLAR_COMMIT_DATE, written by commit.cmake

#include "core/base/strings.h"

namespace ashlar::launch {

std::string_view version() { return ASHLAR_VERSION; }
std::string_view commit() { return ASHLAR_COMMIT; }
std::string_view commit_date() { return ASHLAR_COMMIT_DATE; }
std::string_view compilers() { return ASHLAR_COMPILERS; }

std::string version_text() {
  return str_cat("ashlar ", version(), " (commit ", commit(), "; ", compilers(), ")\n", ASHLAR_LIBRARIES, "\n");
}

}  // namespace ashlar::launch
