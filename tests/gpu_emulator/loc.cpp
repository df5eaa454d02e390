#include "tests/gpu_emulator/loc.h"

#include <cstring>

#include "core/base/strings.h"

namespace ashlar::emulator {

bool Loc::operator==(const Loc& other) const {
  if (line != other.line) return false;
  return file == other.file || (file != nullptr && other.file != nullptr && std::strcmp(file, other.file) == 0);
}

std::string Loc::text() const {
  if (file == nullptr) return "a place that is not known";
  const char* slash = std::strrchr(file, '/');
  return str_cat(slash == nullptr ? file : slash + 1, ":", line);
}

}  // namespace ashlar::emulator
