// configs/zoo: each file is the model that it says, by its count of parameters; comparisons with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/zoo/comparison.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::zoo {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct ZooCount {
  int64_t computed = 0;
  std::string published;
  int64_t active = 0;  ///< 0 for a model without experts
};
std::map<std::string, ZooCount> zoo_counts() {
  std::map<std::string, ZooCount> all;
  std::ifstream file(ASHLAR_SOURCE_DIR "/tests/config/zoo_counts.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string id;
    ZooCount count;
    words >> id >> count.computed >> count.published;
    if (!words.eof()) words >> count.active;
    all[id] = count;
  }
  return all;
}

config::RunConfig resolved(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return config::resolve(config::parse_config(text, "test.toml", overrides),
                         {.dataset_vocab_size = 257, .purpose = config::Purpose::kModel})
      .config;
}

const Published& named(const std::vector<Published>& models, const std::string& id) {
  for (const Published& p : models)
    if (p.id == id) return p;
  throw Bug(id);
}

std::vector<std::string> texts_of(const std::vector<Note>& notes, Note::Kind kind) {
  std::vector<std::string> texts;
  for (const Note& r : notes)
    if (r.kind == kind) texts.push_back(r.text);
  return texts;
}

TEST(Zoo, EveryModelHasItsNumberOfParameters) {
  const std::map<std::string, ZooCount> expected = zoo_counts();
  const std::vector<Published> models = published_models();
  EXPECT_EQ(models.size(), expected.size());
  for (const Published& p : models) {
    ASSERT_TRUE(expected.contains(p.id)) << p.id;
    EXPECT_EQ(p.parameters, expected.at(p.id).computed) << p.id;
    EXPECT_THAT(p.title, Not(IsEmpty())) << p.id;
    const int64_t active = expected.at(p.id).active;
    EXPECT_EQ(active > 0, p.config.model.moe.experts > 0) << p.id;
    EXPECT_EQ(model::active_parameters(p.config.model), active > 0 ? active : p.parameters) << p.id;
    // The count of the whole table, and another way to it: that of the published weights.
    const std::string& published = expected.at(p.id).published;
    if (published != "-") {
      EXPECT_EQ(std::to_string(p.parameters), published) << p.id;
    }
  }
}

/// A twin is small, and has every axis of its model.
TEST(Zoo, TinyTwinsAreTheSameArchitecture) {
  for (const Published& p : published_models()) {
    SCOPED_TRACE(p.id);
    const config::RunConfig tiny = resolved(std::string(published_text(p.id).toml), tiny_twin(p.config));
    model::ModelConfig m = tiny.model;
    m.vocab_size = 257;
    m.vocab_pad_to = 1;
    EXPECT_LT(model::count_parameters(m).total(), 100'000);
    EXPECT_THAT(neighbours(tiny, {p})[0].differences, IsEmpty()) << neighbours(tiny, {p})[0].differences[0].key;
  }
}

TEST(Zoo, TheNearestModelOfEachIsItself) {
  const std::vector<Published> models = published_models();
  for (const Published& p : models) {
    const Neighbour nearest = neighbours(p.config, models)[0];
    EXPECT_THAT(nearest.differences, IsEmpty()) << p.id;
    EXPECT_EQ(nearest.size_distance, 0) << p.id;
    EXPECT_THAT(texts_of(notes(p.config, models), Note::Kind::kUnique), IsEmpty()) << p.id;
    EXPECT_THAT(texts_of(notes(p.config, models), Note::Kind::kWarning), IsEmpty()) << p.id;
  }
}

TEST(Zoo, AChangedAxisIsNamed) {
  const std::vector<Published> models = published_models();
  const std::string llama(published_text("llama2-7b").toml);
  const config::RunConfig changed = resolved(llama, {"bias.attn_out=true"});
  const Neighbour nearest = neighbours(changed, models)[0];
  ASSERT_EQ(nearest.differences.size(), 1U);
  EXPECT_EQ(nearest.differences[0].key, "bias.attn_out");
  EXPECT_EQ(nearest.model->id, "llama2-7b");
  EXPECT_EQ(nearest.differences[0].left, "true");
  // Rare or unique by the share of models that have it.
  const config::RunConfig odd = resolved(llama, {"rope.base=12345"});
  EXPECT_THAT(texts_of(notes(odd, models), Note::Kind::kUnique), Contains(HasSubstr("rope.base = 12345")));
}

TEST(Zoo, RatiosOutsideOfAllAreWarnedOf) {
  const std::vector<Published> models = published_models();
  const std::string llama(published_text("llama2-7b").toml);
  const auto warned = [&](const std::vector<std::string>& overrides) {
    return texts_of(notes(resolved(llama, overrides), models), Note::Kind::kWarning);
  };
  EXPECT_THAT(warned({}), IsEmpty());
  EXPECT_THAT(warned({"model.d_ff=1024"}), Contains(HasSubstr("d_ff / d_model of a gated FFN = 0.25")));
  EXPECT_THAT(warned({"model.n_heads=256"}), Contains(HasSubstr("head_dim = 16")));
  EXPECT_THAT(warned({"model.n_layers=2"}), Contains(HasSubstr("d_model / n_layers = 2048")));
  EXPECT_THAT(warned({"train.sequence_length=1000000"}), Contains(HasSubstr("rope.base / train.sequence_length")));
}

TEST(Zoo, WhoUsesWhatCountsEveryModelOnce) {
  const std::vector<Published> models = published_models();
  bool norms = false;
  for (const Uses& uses : usage_by_key(models)) {
    size_t all = 0;
    for (const Use& use : uses.values) all += use.ids.size();
    EXPECT_LE(all, models.size()) << uses.key;
    if (uses.key == "norm.type") {
      norms = true;
      EXPECT_EQ(all, models.size());
      EXPECT_EQ(uses.values[0].value, "\"rmsnorm\"");
      EXPECT_THAT(uses.values[1].ids, Contains("gpt2-124m"));
    }
  }
  EXPECT_TRUE(norms);
  EXPECT_THROW(published_text("gpt2-125m"), Error);
  EXPECT_EQ(named(models, "llama2-70b").config.model.n_kv_heads, 8);
}

}  // namespace
}  // namespace ashlar::zoo
