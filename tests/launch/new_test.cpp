// ashlar new: sizes, layouts and the file that it writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "core/base/strings.h"
#include "launch/new_config/amounts.h"
#include "launch/new_config/new_config.h"
#include "launch/new_config/training_rules.h"
#include "launch/plan/fastest_layout.h"
#include "parallel/model/parameter_count.h"
#include "parallel/model/slices.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

using new_config::Family;
using new_config::Shape;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

new_config::Request new_request(int64_t parameters, const std::string& like, int64_t ranks) {
  new_config::Request request;
  request.parameters = parameters;
  request.like = like;
  request.ranks = ranks;
  request.data = {.path = "data/text",
                  .vocab_size = parameters < 30'000'000 ? 1000 : 50257,
                  .tokens = 10'000'000'000,
                  .resident_bytes = [](int64_t) { return int64_t{1} << 20; }};
  request.target = plan::find_target("h100-sxm", ranks);
  request.file = "wanted.toml";
  return request;
}

/// One case in so many is run: plans are thirty times slower under the sanitizers.
int one_in() { return testing::under_address_sanitizer() ? 5 : 1; }

Shape shape_for(const Family& family, int64_t parameters, int64_t vocab_size) {
  return new_config::choose_shape({.family = family,
                                   .parameters = parameters,
                                   .vocab_size = vocab_size,
                                   .sequence_length = new_config::sequence_length_for(family, parameters)});
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput) << error.what();
    return error.what();
  }
  return "";
}

TEST(NewConfig, AmountsHaveUnitsOfThousands) {
  EXPECT_EQ(new_config::parse_amount("--params", "124M"), 124'000'000);
  EXPECT_EQ(new_config::parse_amount("--params", "1.3b"), 1'300'000'000);
  EXPECT_EQ(new_config::parse_amount("--params", "7000"), 7000);
  for (const char* wrong : {"", "M", "0", "-3M", "124MB", "12 M", "nan", "inf", "1e30", "124G"})
    EXPECT_THAT(message_of([&] { new_config::parse_amount("--params", wrong); }),
                AllOf(HasSubstr("--params"), HasSubstr("expected a positive number with K, M, B or T")))
        << wrong;
  EXPECT_EQ(new_config::amount_text(2.48e9), "2.48B");
  EXPECT_EQ(new_config::amount_text(999'600), "1M");
  EXPECT_EQ(new_config::grouped(1234567), "1,234,567");
  EXPECT_EQ(new_config::grouped(123456), "123,456");
  EXPECT_EQ(new_config::grouped(123), "123");
  EXPECT_EQ(new_config::round_down_nicely(499), 200);
}

TEST(NewConfig, CountsAreWithinThreePercentForEveryFamilySizeAndVocabulary) {
  int64_t shapes = 0, refused = 0;
  const auto check = [&](const Family& family, int64_t wanted, int64_t vocab_size) {
    const std::string what = str_cat(family.id, " ", wanted, " with ", vocab_size, " ids");
    Shape shape;
    const std::string error = message_of([&] { shape = shape_for(family, wanted, vocab_size); });
    if (!error.empty()) {
      ++refused;
      EXPECT_THAT(error, HasSubstr("expected at least")) << what;
      EXPECT_EQ(wanted, 1'000'000) << what << ": " << error;
      return;
    }
    ++shapes;
    const int64_t count = model::count_parameters(shape.model).total();
    EXPECT_EQ(count, shape.parameters) << what;
    EXPECT_NEAR(static_cast<double>(count) / static_cast<double>(wanted), 1, new_config::kTolerance) << what;
    EXPECT_THAT(model::slicing_problems(shape.model, 1), IsEmpty()) << what;
    EXPECT_EQ(shape.model.n_heads % shape.model.n_kv_heads, 0) << what;
    EXPECT_GE(shape.model.n_layers, 2) << what;
  };
  for (const std::string& like : new_config::family_names())
    for (const int64_t wanted :
         {1'000'000L, 10'000'000L, 124'000'000L, 1'300'000'000L, 7'000'000'000L, 70'000'000'000L}) {
      const Family family = new_config::find_family(like, wanted);
      for (const int64_t vocab_size : {257, 50257}) check(family, wanted, vocab_size);
    }
  EXPECT_GT(shapes, 450);
  EXPECT_GT(refused, 25);  // a million parameters cannot hold 50257 ids
}

TEST(NewConfig, TheLeastSizeOfAnErrorIsASizeThatWorks) {
  const Family family = new_config::find_family("llama3", 1);
  const std::string error = message_of([&] { shape_for(family, 5'000'000, 50257); });
  std::string digits = error.substr(error.find("at least ") + 9);
  digits = digits.substr(0, digits.find(", "));
  std::erase(digits, ',');
  const int64_t least = parse_number<int64_t>(digits).value_or(0);
  EXPECT_GT(least, 5'000'000) << error;
  EXPECT_NEAR(static_cast<double>(shape_for(family, least, 50257).parameters) / static_cast<double>(least), 1, 0.03);
}

TEST(NewConfig, APublishedSizeGivesThePublishedShape) {
  const Shape gpt2 = shape_for(new_config::find_family("gpt2", 124'000'000), 124'439'808, 50257);
  EXPECT_EQ(gpt2.model.d_model, 768);
  EXPECT_EQ(gpt2.model.n_layers, 12);
  EXPECT_EQ(gpt2.model.n_heads, 12);
  EXPECT_EQ(gpt2.model.d_ff, 3072);
  const Shape llama = shape_for(new_config::find_family("llama3-8b", 1), 8'030'261'248, 128256);
  EXPECT_EQ(llama.model.d_model, 4096);
  EXPECT_EQ(llama.model.n_layers, 32);
  EXPECT_EQ(llama.model.n_kv_heads, 8);
  EXPECT_EQ(llama.model.d_ff, 14336);
  EXPECT_FALSE(llama.model.tied);
  EXPECT_TRUE(shape_for(new_config::find_family("llama3-8b", 1), 124'000'000, 128256).tied_for_size);
}

TEST(NewConfig, FamiliesAreThoseOfTheZoo) {
  EXPECT_THAT(new_config::family_names(), AllOf(::testing::Contains("llama3"), ::testing::Contains("olmoe")));
  EXPECT_EQ(new_config::find_family("llama3", 60'000'000'000).id, "llama3-70b");
  EXPECT_EQ(new_config::find_family("qwen3", 30'000'000'000).id, "qwen3-32b");  // not the 30B with experts
  EXPECT_EQ(new_config::find_family("qwen3-30b-a3b", 1'000'000'000).config.model.moe.experts, 128);
  EXPECT_THAT(
      message_of([] { new_config::find_family("lama3", 1'000'000); }),
      AllOf(HasSubstr("--like = 'lama3'"), ContainsRegex("nearest first: (llama3|gemma3)"), HasSubstr("qwen3")));
  EXPECT_THAT(message_of([] { new_config::find_family("gpt", 1'000'000); }), HasSubstr("nearest first: gpt1"));
  // Positions beyond a trained context are not stretched in a model that has no trained context.
  const Family oss = new_config::find_family("gpt-oss", 20'000'000'000);
  EXPECT_THAT(oss.left_out, ::testing::Contains("rope.scaling"));
  for (const new_config::Option& option : oss.options) EXPECT_THAT(option.key, Not(HasSubstr("rope.factor")));
}

TEST(NewConfig, BatchAndRateAreDeepSeeks) {
  // Figure 3 of arXiv 2401.02954: at 1e20 flops about 1.0M tokens and 9.9e-4.
  EXPECT_NEAR(new_config::batch_tokens_for(1e20), 1.019e6, 0.01e6);
  EXPECT_NEAR(new_config::lr_for(1e20), 9.86e-4, 0.01e-4);
}

TEST(NewConfig, RanksDivideTheBatchAndTheHeadIsNotCounted) {
  const Shape shape = shape_for(new_config::find_family("gpt2", 124'000'000), 124'439'808, 50257);
  const auto rules = [](const Shape& of, int64_t ranks) {
    return new_config::training_rules({.shape = of, .sequence_length = 1024, .tokens = 2'500'000'000, .ranks = ranks});
  };
  for (const int64_t ranks : {1, 6, 12, 40}) EXPECT_EQ(rules(shape, ranks).global_batch % ranks, 0) << ranks;
  Shape more_ids = shape;
  more_ids.model.vocab_size *= 2;
  EXPECT_DOUBLE_EQ(rules(more_ids, 1).compute, rules(shape, 1).compute);
}

TEST(NewConfig, TokensFollowWhatATokenMeetsAndStdTheWidth) {
  const new_config::NewConfig made = new_config::make_config(new_request(20'000'000, "deepseek-v3", 1));
  const config::RunConfig& run = made.planned.run;
  const int64_t tokens = run.train.steps * run.train.global_batch * run.train.sequence_length;
  const auto active = static_cast<double>(model::active_parameters(run.model));
  EXPECT_NEAR(static_cast<double>(tokens) / active, 20, 0.2);
  EXPECT_LT(active, 15e6);
  const new_config::Family family = new_config::find_family("deepseek-v3", 1);
  EXPECT_LT(family.config.model.init.std, 0.01);
  EXPECT_DOUBLE_EQ(run.model.init.std, 0.02) << "much narrower, so the usual deviation";
}

// What is written resolves, has the wanted count, and its plan fits, or one error says which number of ranks would do.
TEST(NewConfig, PlansFitOrTheErrorSaysWhatWould) {
  struct Case {
    double parameters;
    const char* like;
    int64_t ranks;
    bool fits;
  };
  int place = 0;
  for (const Case& c : {Case{1e6, "llama3", 1, true}, Case{1e6, "gpt2", 64, true}, Case{1e7, "olmoe", 2, true},
                        Case{1.24e8, "qwen3", 8, true}, Case{1.3e9, "gemma3", 2, true}, Case{7e9, "llama3", 8, true},
                        Case{7e9, "mixtral", 8, true}, Case{7e9, "gpt2", 1, false}, Case{7e10, "llama3", 8, false},
                        Case{1.3e9, "deepseek-v3", 64, true}}) {
    if (place++ % one_in() != 0) continue;
    const new_config::Request request = new_request(static_cast<int64_t>(c.parameters), c.like, c.ranks);
    const std::string what = str_cat(c.like, " ", c.parameters, " on ", c.ranks);
    new_config::NewConfig made;
    const std::string error = message_of([&] { made = new_config::make_config(request); });
    EXPECT_EQ(error.empty(), c.fits) << what << ": " << error;
    if (!error.empty()) {
      EXPECT_THAT(error, AllOf(HasSubstr("the nearest miss needs"), ContainsRegex("-np [0-9]+ fits"))) << what;
      continue;
    }
    EXPECT_LE(made.planned.memory.bytes, 0.95 * 80e9) << what;
    EXPECT_EQ(made.planned.ranks(), c.ranks) << what;
    EXPECT_THAT(model::slicing_problems(made.planned.run.model, made.planned.run.mesh.tensor), IsEmpty()) << what;
    EXPECT_LE(std::ssize(made.summary), 6) << what;
    const double count = static_cast<double>(model::count_parameters(made.planned.run.model).total());
    EXPECT_NEAR(count / c.parameters, 1, new_config::kTolerance) << what;
  }
}

TEST(NewConfig, EveryFamilyGivesAConfigurationOnAnyNumberOfRanks) {
  int place = 0;
  for (const std::string& like : new_config::family_names()) {
    for (const int64_t ranks : {1, 2, 8, 64}) {
      if (place++ % one_in() != 0) continue;
      const new_config::NewConfig made = new_config::make_config(new_request(20'000'000, like, ranks));
      const std::string what = str_cat(like, " on ", ranks);
      EXPECT_EQ(made.planned.ranks(), ranks) << what;
      EXPECT_LE(made.planned.memory.bytes, 0.95 * 80e9) << what;
      for (const absl::string_view line : absl::StrSplit(made.text, '\n')) EXPECT_LE(line.size(), 120) << what << line;
      const config::RawConfig raw = config::parse_config(made.text, "wanted.toml", {});
      EXPECT_THAT(raw.errors(), IsEmpty()) << what;
    }
  }
}

// The search skips plans that cannot win; ranked_meshes plans everything.
TEST(NewConfig, TheLayoutIsAsFastAsTheBestOfAllMeshes) {
  const new_config::Request request = new_request(1'300'000'000, "llama3", 4);
  const new_config::NewConfig made = new_config::make_config(request);
  const plan::PlanChoice plan_choice = [&](const plan::Choice& choice) {
    const config::RawConfig raw = config::parse_config(made.text, "wanted.toml", choice.overrides);
    const config::RunConfig run =
        config::resolve(raw, {.dataset_vocab_size = request.data.vocab_size, .ranks = choice.ranks}).config;
    return plan::plan_of({.run = run, .device = request.target.kind}, request.target);
  };
  for (const plan::MeshChoice& mesh : plan::ranked_meshes(made.planned, request.target, plan_choice)) {
    if (!mesh.planned || !fits(*mesh.planned, request.target)) continue;
    EXPECT_LE(made.planned.time->seconds, 1.03 * 1.01 * mesh.planned->time->seconds);
  }
}

/// The warning's own advice gives no warning, though steps are whole and the batch follows the tokens.
TEST(NewConfig, TokensAdvisedAgainstRepetitionAreFollowedWithoutAWarning) {
  int64_t advised = 0;
  for (const int64_t tokens :
       {2'000'000, 2'500'000, 4'567'891, 6'000'000, 7'500'000, 12'500'000, 25'000'000, 99'999'999}) {
    new_config::Request request = new_request(120'000'000, "gpt2", 4);
    request.data.tokens = tokens;
    const std::vector<std::string> warnings = new_config::make_config(request).warnings;
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_THAT(warnings[0], HasSubstr("beyond 4 epochs repeated data is worth little"));
    const size_t at = warnings[0].find("--tokens ");
    if (at == std::string::npos) continue;
    ++advised;
    request.tokens = new_config::parse_amount("--tokens", warnings[0].substr(at + 9));
    EXPECT_GT(static_cast<double>(*request.tokens), 0.94 * 4 * static_cast<double>(tokens)) << warnings[0];
    EXPECT_THAT(new_config::make_config(request).warnings, IsEmpty()) << warnings[0];
  }
  EXPECT_GE(advised, 5);
}

TEST(NewConfig, NoTokensAreAdvisedThatAreTooFewSteps) {
  new_config::Request request = new_request(120'000'000, "gpt2", 4);
  request.data.tokens = 4'000;
  const std::vector<std::string> warnings = new_config::make_config(request).warnings;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("give more data or a smaller --params"), Not(HasSubstr("--tokens"))));
}

class NewCommand : public ::testing::Test {
 protected:
  std::string input_error(const std::string& words) const {
    const ShellResult r = run_.ashlar("new " + words);
    EXPECT_EQ(r.code, kInput) << words << r.out;
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
    return r.err;
  }
  RunFixture run_;
};

TEST_F(NewCommand, WritesAFileThatPlanParamsAndTrainTake) {
  const ShellResult r = run_.ashlar("new --params 200K --data data --tokens 200K -np 2 --out small.toml");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_LE(std::ranges::count(r.out, '\n'), 6) << r.out;
  EXPECT_THAT(r.err, HasSubstr("epochs"));  // a small dataset, repeated too often
  const ShellResult plan = run_.ashlar("plan small.toml");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("2 ranks"), HasSubstr(": fits")));
  EXPECT_EQ(run_.ashlar("params small.toml").code, 0);
  const std::string train = "train small.toml train.steps=3 run.threads=1 schedule.warmup_steps=1 ";
  const ShellResult two = run_.ashlar("launch -np 2 " + train + "run.dir=two");
  EXPECT_EQ(two.code, 0) << two.err;
  const ShellResult one = run_.ashlar(train + "mesh.data=1 mesh.tensor=1 mesh.pipeline=1 run.dir=one");
  EXPECT_EQ(one.code, 0) << one.err;
  run_.expect_same_metrics("one", "two", 1e-2);
}

TEST_F(NewCommand, KeepsAFileUnlessForced) {
  run_.write("mine.toml", "# mine\n");
  EXPECT_THAT(input_error("--params 1M --data data --out mine.toml"),
              AllOf(HasSubstr("mine.toml exists"), HasSubstr("--force")));
  EXPECT_EQ(run_.read("mine.toml"), "# mine\n");
  EXPECT_EQ(run_.ashlar("new --params 1M --data data --out mine.toml --force").code, 0);
  EXPECT_THAT(run_.read("mine.toml"), HasSubstr("[model]"));
}

TEST_F(NewCommand, ErrorsNameTheOptionAndWhatWouldDo) {
  EXPECT_THAT(input_error("--data data"), HasSubstr("--params is missing"));
  EXPECT_THAT(input_error("--params 1M"), HasSubstr("--data is missing"));
  EXPECT_THAT(input_error("--params 124MB --data data"), HasSubstr("--params = '124MB'"));
  EXPECT_THAT(input_error("--params 0 --data data"), HasSubstr("expected a positive number"));
  EXPECT_THAT(input_error("--params 1M --data data --tokens few"), HasSubstr("--tokens = 'few'"));
  EXPECT_THAT(input_error("--params 1M --data data --tokens 2K"), HasSubstr("--tokens = 2,000: expected at least"));
  EXPECT_THAT(input_error("--params 2K --data data"), ContainsRegex("expected at least [0-9]"));
  EXPECT_THAT(input_error("--params 1M --data nowhere"), HasSubstr("nowhere"));
  EXPECT_THAT(input_error("--params 1M --data data -np two"), HasSubstr("-np = two: expected a whole number"));
  EXPECT_THAT(input_error("--params 1M --data data --like qwen33"), HasSubstr("qwen3"));
  EXPECT_THAT(input_error("--params 1M --data data --device h1000"), HasSubstr("h100"));
  EXPECT_THAT(input_error("--params 1M --data data --out x.yaml"), HasSubstr("FILE.toml"));
  EXPECT_FALSE(std::filesystem::exists(run_.dir() / "llama3-1m.toml"));
}

}  // namespace
}  // namespace ashlar::testing
