// What a run says about the validation parts of its datasets.
#include "launch/training/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/run_fixture.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using training::ValidationResult;

TEST(Validation, TheMeanIsByWeight) {
  ValidationResult r{.sources = {{"a", 3, 2.0, 100}, {"b", 1, 6.0, 7}, {"c", 1e-9, 1e9, 1}}, .mixture = true};
  combine(r);
  EXPECT_NEAR(r.loss, (3 * 2.0 + 6.0 + 1.0) / (4 + 1e-9), 1e-12);
  EXPECT_EQ(r.tokens, 108);
  EXPECT_EQ(to_lines(r, 5, 1).size(), 4u);
}

std::vector<nlohmann::json> validations(const testing::RunFixture& run, const std::string& dir) {
  std::vector<nlohmann::json> found;
  std::istringstream rows(run.read(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("val_loss")) found.push_back(row);
  }
  return found;
}

/// Each dataset of a mixture has the loss that it has alone, in `train` and in `eval`, and what has none is said.
TEST(Validation, EachDatasetOfAMixture) {
  const testing::RunFixture run;
  std::string other;
  for (int i = 0; i < 3000; ++i) other += std::to_string(i * i % 997) + (i % 9 == 0 ? "\n" : " ");
  run.write("other.txt", other);
  ASSERT_EQ(run.ashlar("data build other.txt --out other --validation 0.3").code, 0);
  ASSERT_EQ(run.ashlar("data build other.txt --out bare --validation 0").code, 0);
  const std::string mixture =
      "'data.path=[{path=\"data\",weight=3},{path=\"bare\",weight=2},{path=\"other\",weight=1}]' ";
  const std::string small =
      "train.steps=2 schedule.warmup_steps=1 train.eval_every=0 train.eval_batches=3 checkpoint.every=0 ";
  const auto r = run.ashlar("train tiny.toml run.dir=mixed " + small + mixture);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string said = r.out + r.err;
  EXPECT_THAT(said, HasSubstr("bare has no validation part: it takes no part in val_loss"));
  EXPECT_THAT(said, HasSubstr("mean of 2 datasets by weight"));
  const auto rows = validations(run, "mixed");
  ASSERT_EQ(rows.size(), 1u);
  const auto& sources = rows[0].at("val_sources");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].at("path"), "data");
  EXPECT_EQ(sources[1].at("path"), "other");
  const double data = sources[0].at("val_loss"), text = sources[1].at("val_loss");
  EXPECT_NEAR(rows[0].at("val_loss").get<double>(), (3 * data + text) / 4, 1e-12);
  EXPECT_EQ(rows[0].at("val_tokens").get<int64_t>(),
            sources[0].at("val_tokens").get<int64_t>() + sources[1].at("val_tokens").get<int64_t>());
  EXPECT_NE(data, text);

  const auto both = run.ashlar("eval mixed --batches 3");
  ASSERT_EQ(both.code, 0) << both.err;
  std::vector<double> losses;
  std::istringstream lines(both.out + both.err);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("val_loss ");
    if (at != std::string::npos) losses.push_back(std::stod(line.substr(at + 9)));
  }
  ASSERT_EQ(losses.size(), 3u) << both.out << both.err;
  EXPECT_NEAR(losses[0], data, 2e-6);
  EXPECT_NEAR(losses[1], text, 2e-6);
  EXPECT_NEAR(losses[2], (3 * data + text) / 4, 2e-6);
  const auto alone = run.ashlar("eval mixed --batches 3 --data other");
  ASSERT_EQ(alone.code, 0);
  EXPECT_NEAR(std::stod((alone.out + alone.err).substr((alone.out + alone.err).find("val_loss ") + 9)), text, 2e-6);
  // More batches than 64 bits hold rows are the whole part.
  const auto whole = run.ashlar("eval mixed --data other"),
             huge = run.ashlar("eval mixed --data other --batches 4611686018427387904");
  const auto loss_of = [](const testing::ShellResult& e) {
    const std::string all = e.out + e.err;
    return all.substr(all.find("val_loss "), all.find(" of ") - all.find("val_loss "));
  };
  EXPECT_EQ(huge.code, 0);
  EXPECT_EQ(loss_of(huge), loss_of(whole));
}

TEST(Validation, NoneAtAllIsSaidOnce) {
  const testing::RunFixture run;
  run.write("other.txt", std::string(5000, 'x'));
  ASSERT_EQ(run.ashlar("data build other.txt --out bare --validation 0").code, 0);
  const auto r = run.ashlar(
      "train tiny.toml run.dir=none train.steps=1 schedule.warmup_steps=1 checkpoint.every=0 'data.path=\"bare\"'");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out + r.err, HasSubstr("bare has no validation part: no val_loss will be reported"));
  EXPECT_TRUE(validations(run, "none").empty());
  const auto eval = run.ashlar("eval none");
  EXPECT_EQ(eval.code, 2);
  EXPECT_THAT(eval.err, HasSubstr("bare has no validation part"));
}

}  // namespace
}  // namespace ashlar
