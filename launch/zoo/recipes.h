#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/zoo/published.h"

/// Training configurations of published models: those of configs/start, built into the program.
namespace ashlar::zoo {

std::span<const PublishedText> recipe_texts();

struct Recipe {
  std::string id, title, source;  ///< "pythia-70m", "Pythia 70M", the source of its values
  config::RunConfig config;
  int64_t parameters = 0;
  int64_t tokens = 0;        ///< steps * global_batch * sequence_length
  int64_t guessed_keys = 0;  ///< number of keys marked as not published
};

/// All recipes, resolved, ordered by model size within a family.
std::vector<Recipe> recipes();

/// One of them; the input error names those with a similar id.
const PublishedText& recipe_text(std::string_view id);

/// configs/start/README.md.
std::string recipes_markdown();

}  // namespace ashlar::zoo
