#include "core/base/mesh_axis.h"

namespace ashlar {

std::string text_of(AxisSet axes) {
  std::string text;
  for (const auto& [axis, name] : kAxisNames)
    if (axes.has(axis)) text.append(text.empty() ? "" : "+").append(name);
  return text.empty() ? "no axis" : text;
}

}  // namespace ashlar
