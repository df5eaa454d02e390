#pragma once

#include <string>
#include <vector>

#include "launch/zoo/published.h"

namespace ashlar::zoo {

/// A value that published models give a key, and which.
struct Use {
  std::string value;
  std::vector<std::string> ids;
};
/// A key of the model sections with the values that are used, the most frequent first. Sizes are left out.
struct Uses {
  std::string key;
  std::vector<Use> values;
};
std::vector<Uses> who_uses_what(const std::vector<Published>& models);

/// A published model and what a configuration has otherwise.
struct Neighbour {
  const Published* model = nullptr;
  std::vector<config::ModelDifference> axes;  ///< left: the configuration, right: the published model; sizes left out
  double size_distance = 0;                   ///< sum of |log ratio| of depth, width, heads and FFN width
};
/// All of them, the one with the fewest other axes first; of equals the one of the nearest size.
std::vector<Neighbour> neighbours(const config::RunConfig& config, const std::vector<Published>& models);

/// How usual a configuration is, a line each: axes that few published models share or none, and ratios outside of what
/// any of them has (d_ff / d_model, head_dim, d_model / n_layers, rope.base for the length).
struct Remark {
  enum class Kind : uint8_t { kCustomary, kRare, kUnique, kWarning } kind;
  std::string text;
};
std::vector<Remark> remarks(const config::RunConfig& config, const std::vector<Published>& models);

}  // namespace ashlar::zoo
