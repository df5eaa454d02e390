#pragma once

#include <string>
#include <vector>

#include "launch/zoo/published.h"

namespace ashlar::zoo {

/// A value of a key, and the published models that have it.
struct Use {
  std::string value;
  std::vector<std::string> ids;
};
/// A key of the model sections with its values, the most frequent first. Sizes are left out.
struct Uses {
  std::string key;
  std::vector<Use> values;
};
std::vector<Uses> who_uses_what(const std::vector<Published>& models);

/// A published model and its differences from a configuration.
struct Neighbour {
  const Published* model = nullptr;
  std::vector<config::ModelDifference> axes;  ///< left: the configuration, right: the published model; sizes left out
  double size_distance = 0;                   ///< sum of |log ratio| of depth, width, heads and FFN width
};
/// All published models, those with the fewest different options first; ties by nearest size.
std::vector<Neighbour> neighbours(const config::RunConfig& config, const std::vector<Published>& models);

/// Remarks on how common a configuration is, one line each: options that few or no published models have, and ratios
/// outside the published range (d_ff / d_model, head_dim, d_model / n_layers, rope.base for the length).
struct Remark {
  enum class Kind : uint8_t { kCustomary, kRare, kUnique, kWarning } kind;
  std::string text;
};
std::vector<Remark> remarks(const config::RunConfig& config, const std::vector<Published>& models);

}  // namespace ashlar::zoo
