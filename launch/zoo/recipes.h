#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/zoo/published.h"

/// The training configurations of published models in configs/start, which are compiled into the program.
namespace ashlar::zoo {

std::span<const PublishedText> recipe_texts();

struct Recipe {
  std::string id, title, source;  ///< "pythia-70m", "Pythia 70M", the source of its values
  config::RunConfig config;
  int64_t parameters = 0;
  int64_t tokens = 0;        ///< steps * global_batch * sequence_length
  int64_t guessed_keys = 0;  ///< number of keys marked as not published
};

/// Returns all recipes, resolved, grouped by family and ordered by model size within a family.
std::vector<Recipe> recipes();

/// Returns the text of one recipe. For an unknown id, throws an input error that suggests similar ids.
const PublishedText& recipe_text(std::string_view id);

/// Returns the text of configs/start/README.md.
std::string recipes_markdown();

}  // namespace ashlar::zoo
