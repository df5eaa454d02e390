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
std::vector<Uses> usage_by_key(const std::vector<Published>& models);

/// A published model and its differences from a configuration.
struct Neighbour {
  const Published* model = nullptr;
  std::vector<config::ModelDifference>
      differences;           ///< left: the configuration, right: the published model; sizes left out
  double size_distance = 0;  ///< sum of |log ratio| of depth, width, heads and FFN width
};
/// All published models, ordered by the number of options that differ, then by the difference in size.
std::vector<Neighbour> neighbours(const config::RunConfig& config, const std::vector<Published>& models);

/// Notes on how common a configuration is, one line each. They name options that few or no published models have, and
/// ratios outside the published range (d_ff / d_model, head_dim, d_model / n_layers, rope.base for the length).
struct Note {
  enum class Kind : uint8_t { kCustomary, kRare, kUnique, kWarning } kind;
  std::string text;
};
std::vector<Note> notes(const config::RunConfig& config, const std::vector<Published>& models);

}  // namespace ashlar::zoo
