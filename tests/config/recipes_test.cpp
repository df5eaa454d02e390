// configs/start: each training is of the model and of the tokens that are published, and its table is true.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/zoo/recipes.h"

namespace ashlar::zoo {
namespace {

struct RecipeCount {
  int64_t parameters = 0;
  double tokens = 0;
};
std::map<std::string, RecipeCount> recipe_counts() {
  std::map<std::string, RecipeCount> all;
  std::ifstream file(ASHLAR_SOURCE_DIR "/tests/config/recipe_counts.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string id;
    words >> id;
    words >> all[id].parameters >> all[id].tokens;
  }
  return all;
}

/// 1,234 and 1234 alike: the digits at the beginning.
int64_t number_of(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) {
    if (c == ',') continue;
    if (c < '0' || c > '9') break;
    n = 10 * n + (c - '0');
  }
  return n;
}

TEST(Recipes, HaveTheirModelsParametersAndTokens) {
  const std::map<std::string, RecipeCount> expected = recipe_counts();
  const std::vector<Recipe> all = recipes();
  EXPECT_EQ(all.size(), expected.size());
  for (const Recipe& r : all) {
    ASSERT_TRUE(expected.contains(r.id)) << r.id;
    const RecipeCount& count = expected.at(r.id);
    EXPECT_EQ(r.parameters, count.parameters) << r.id;
    EXPECT_NEAR(static_cast<double>(r.tokens) / count.tokens, 1, 0.005) << r.id;
    EXPECT_FALSE(r.title.empty() || r.source.empty()) << r.id;
    // The second line says both.
    std::istringstream lines{std::string(recipe_text(r.id).toml)};
    std::string line;
    std::getline(lines, line);
    std::getline(lines, line);
    EXPECT_EQ(number_of(std::string_view(line).substr(2)), count.parameters) << line;
    const size_t tokens = line.find("parameters, ");
    ASSERT_NE(tokens, std::string::npos) << line;
    const double said = std::stod(line.substr(tokens + 12)) * (line.ends_with("T tokens.") ? 1e12 : 1e9);
    EXPECT_NEAR(said / count.tokens, 1, 0.05) << line;
  }
}

/// What a run would do: rates that fall, micro-batches that divide the batch, all steps within the schedule.
TEST(Recipes, AreWholeTrainings) {
  for (const Recipe& r : recipes()) {
    SCOPED_TRACE(r.id);
    const config::RunConfig& c = r.config;
    EXPECT_EQ(c.train.global_batch % c.train.micro_batch, 0);
    EXPECT_LT(c.schedule.warmup_steps, c.train.steps / 50);
    EXPECT_LE(c.schedule.warmup_steps + c.schedule.decay_steps, c.train.steps);
    EXPECT_LT(c.schedule.min_ratio, 1);
    EXPECT_EQ(c.run.dtype, DType::kBFloat16);
    EXPECT_EQ(c.run.dir, str_cat("runs/", r.id));
    ASSERT_EQ(c.data.sources.size(), 1U);
    EXPECT_EQ(c.data.sources[0].path, str_cat("data/", r.id));
  }
  EXPECT_THROW(recipe_text("pythia-71m"), Error);
}

TEST(Recipes, TheirTableIsWhatTheFilesSay) {
  std::ifstream file(ASHLAR_SOURCE_DIR "/configs/start/README.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), recipes_markdown()) << "regenerate: ashlar zoo start --markdown > configs/start/README.md";
}

}  // namespace
}  // namespace ashlar::zoo
