#pragma once

#include <string>
#include <vector>

#include "launch/zoo/published.h"

namespace ashlar::zoo {

/// A value of a key, and the published models that have this value.
struct Use {
  std::string value;
  std::vector<std::string> ids;
};
/// A key of the model sections, or a property such as "KV heads", with its values, the most frequent value first. Keys
/// of sizes, initialization and training (dropout, loss) are left out.
struct Uses {
  std::string key;
  std::vector<Use> values;
};
std::vector<Uses> usage_by_key(const std::vector<Published>& models);

/// A published model and its differences from a configuration.
struct Neighbour {
  const Published* model = nullptr;
  std::vector<config::ModelDifference>
      differences;           ///< left: the configuration, right: the published model; no keys of sizes
  double size_distance = 0;  ///< sum of |log ratio| of depth, width, heads and FFN width
};
/// Returns all published models, ordered by the number of options that differ, then by size_distance.
std::vector<Neighbour> neighbours(const config::RunConfig& config, const std::vector<Published>& models);

/// One line about a configuration. notes() returns a line for each option, which names or counts the published models
/// with that option, and a warning for each ratio outside the range of the published models (d_ff / d_model, head_dim,
/// d_model / n_layers, rope.base / train.sequence_length).
struct Note {
  enum class Kind : uint8_t { kCustomary, kRare, kUnique, kWarning } kind;
  std::string text;
};
std::vector<Note> notes(const config::RunConfig& config, const std::vector<Published>& models);

}  // namespace ashlar::zoo
