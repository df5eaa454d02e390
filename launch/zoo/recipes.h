#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/zoo/published.h"

/// Whole trainings to start from: the configurations of configs/start, which the program carries.
namespace ashlar::zoo {

std::span<const PublishedText> recipe_texts();

struct Recipe {
  std::string id, title, source;  ///< "pythia-70m", "Pythia 70M", where its values are from
  config::RunConfig config;
  int64_t parameters = 0;
  int64_t tokens = 0;        ///< steps * global_batch * sequence_length
  int64_t guessed_keys = 0;  ///< marked as not published
};

/// All of them, resolved, by the size of their models within a family.
std::vector<Recipe> recipes();

/// One of them; input error that names those with a similar id.
const PublishedText& recipe_text(std::string_view id);

/// configs/start/README.md.
std::string recipes_markdown();

}  // namespace ashlar::zoo
