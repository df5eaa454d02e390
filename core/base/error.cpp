#include "core/base/error.h"

namespace ashlar::internal {

void throw_bug(const char* file, int line, const char* condition, const std::string& text) {
  throw Bug(str_cat("[bug] ", file, ":", line, ": ", condition, " does not hold", text.empty() ? "" : ": ", text));
}

}  // namespace ashlar::internal
