// What stands for what: overrides for values of the file, an older key for a newer one, and the values of a run for
// those that would be derived when it goes on.
#include <algorithm>

#include "core/base/strings.h"
#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

// What an override replaces is not looked at, whatever is wrong with it; the last of several overrides counts.
TEST(Continued, AnOverrideTakesItsPlaceBeforeTheFileIsJudged) {
  const auto with = [](const std::string& key, const std::string& line) {
    std::string text = kMinimal;
    const size_t at = text.find(key + " = ");
    return text.replace(at, text.find('\n', at) - at, line);
  };
  for (const char* line :
       {"steps = 'abc'", "steps = -1", "steps = ", "steps = 10O0", "steps = [1]", "steps = {a = 1}"}) {
    const std::string text = with("steps", line);
    EXPECT_EQ(resolved({"train.steps=10"}, text).config.train.steps, 10) << line;
    EXPECT_EQ(errors_of({}, text).size(), 1U) << line;
    expect_one(errors_of({"train.steps=0"}, text), "train.steps = 0", "(command line)");
    expect_one(errors_of({"train.steps=default"}, text), "train.steps: missing", "");
  }
  EXPECT_EQ(resolved({"data.path=a"}, with("path", "path = [{path = 3}]")).config.data.sources[0].path, "a");
  const std::string none = std::string(kMinimal) + "[schedule]\nmin_ratio = 5\nkind = 'multistep'\n";
  EXPECT_EQ(errors_of({}, none).size(), 2U);
  EXPECT_TRUE(errors_of({"schedule.min_ratio=default", "schedule.kind=cosine"}, none).empty());
  EXPECT_EQ(resolved({"train.steps=x", "train.steps=9"}).config.train.steps, 9);
  expect_one(errors_of({"train.steps=9", "train.steps=x"}), "train.steps = 'x'", "(command line)");
}

// Earlier versions knew keys that they refused, or took at one value alone.
TEST(Continued, KeysThatNothingServesAreUnknown) {
  for (const char* key :
       {"model.parametrization", "model.mup_base_width", "model.mup_output_mult", "train.batch_ramp",
        "optimizer.dynamic_decay", "optimizer.decay_norms", "optimizer.decay_biases", "optimizer.clip_warmup_steps",
        "schedule.warmup_tokens", "run.deterministic", "pos.alibi_slopes"})
    expect_one(errors_of({str_cat(key, "=0")}), str_cat(key, ": unknown key"), "(command line)");
}

// They stored this one of them.
TEST(Continued, RunsStoreDeterministicAsItsOnlyValue) {
  const auto with = [](const char* value) { return str_cat(kMinimal, "[run]\ndeterministic = ", value, "\n"); };
  EXPECT_EQ(resolved({}, with("true")).config, resolved({}).config);
  expect_one(errors_of({}, with("false")), "run.deterministic: unknown key", "");
}

// train.eval_batches counted micro-batches: it says train.eval_sequences of the configuration that has it.
TEST(Continued, TheOlderFormOfEvalSequencesIsReadOnce) {
  EXPECT_EQ(resolved({}).config.train.eval_sequences, 512);
  const Resolved r = resolved({"train.eval_batches=50", "train.micro_batch=3"});
  EXPECT_EQ(r.config.train.eval_sequences, 150);
  EXPECT_NE(derived_line(r, "train.eval_sequences").find("train.eval_batches 50 * train.micro_batch 3 * mesh.data 1"),
            std::string::npos);
  EXPECT_EQ(to_toml(r.config).find("eval_batches"), std::string::npos);
  const Facts two{.dataset_vocab_size = 65, .ranks = 2, .hardware_threads = 2};
  EXPECT_EQ(resolve(parse_config(kMinimal, "t.toml", {"train.eval_batches=50"}), two).config.train.eval_sequences, 600);
  EXPECT_EQ(resolved({"train.eval_batches=0"}).config.train.eval_sequences, 0) << "the whole part";
  EXPECT_EQ(resolved({"train.eval_batches=1000000000000"}).config.train.eval_sequences, 1000000000000);
  expect_one(errors_of({"train.eval_batches=5", "train.eval_sequences=7"}), "train.eval_batches = 5",
             "expected only one");
  // One in the file gives way to the other on the command line.
  std::string text = kMinimal;
  text.replace(text.find("steps = 1000"), 12, "steps = 1000\neval_batches = 5");
  EXPECT_EQ(resolved({}, text).config.train.eval_sequences, 60);
  EXPECT_EQ(resolved({"train.eval_sequences=7"}, text).config.train.eval_sequences, 7);
  text.replace(text.find("eval_batches = 5"), 16, "eval_sequences = 5");
  EXPECT_EQ(resolved({"train.eval_batches=2"}, text).config.train.eval_sequences, 24);
}

// What follows from other keys when a run begins stays with it; who wants another gives it.
TEST(Continued, AContinuedRunKeepsWhatItDerived) {
  const RunConfig stored = resolved({"train.steps=40"}).config;
  EXPECT_EQ(stored.schedule.warmup_steps, 2);
  const auto continued = [&](const std::vector<std::string>& words, const RunConfig& from) {
    RawConfig raw = parse_config(kMinimal, "test.toml", words);
    const auto kept = apply_run_values(raw, from, "run/checkpoints/step-40");
    Resolved r = resolve(raw, facts());
    r.derived.insert(r.derived.end(), kept.begin(), kept.end());
    return r;
  };
  const Resolved r = continued({"train.steps=2000"}, stored);
  EXPECT_EQ(r.config.schedule.warmup_steps, 2);
  EXPECT_EQ(r.config.schedule.decay_steps, 38);
  EXPECT_EQ(derived_line(r, "schedule.warmup_steps"), "schedule.warmup_steps = 2 (from run/checkpoints/step-40)");
  const Resolved given = continued({"train.steps=2000", "schedule.warmup_steps=100"}, stored);
  EXPECT_EQ(given.config.schedule.warmup_steps, 100);
  EXPECT_EQ(given.config.schedule.decay_steps, 38);
  EXPECT_EQ(continued({"train.steps=2000", "schedule.decay_steps=1998"}, stored).config.schedule.decay_steps, 1998);
  // The length of a decay is that of its kind.
  EXPECT_EQ(continued({"train.steps=2000", "schedule.kind=wsd"}, stored).config.schedule.decay_steps, 400);
  EXPECT_EQ(continued({"train.steps=2000", "schedule.kind=constant"}, stored).config.schedule.warmup_steps, 2);
  // Older checkpoints have the sequences of micro-batches.
  const RunConfig of_batches = resolved({"train.eval_batches=50", "train.micro_batch=2"}).config;
  EXPECT_EQ(continued({}, of_batches).config.train.eval_sequences, 100);
  // A file that still has that key does not say it again, on whatever ranks; a command line may say another number.
  std::string text = kMinimal;
  text.replace(text.find("steps = 1000"), 12, "steps = 1000\neval_batches = 50");
  RawConfig file = parse_config(text, "test.toml", {"train.micro_batch=1"});
  const auto kept = apply_run_values(file, of_batches, "there");
  EXPECT_EQ(resolve(file, facts()).config.train.eval_sequences, 100);
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const DerivedValue& d) {
    return d.rule ==
           "from there; train.eval_batches = 50 was applied when the run began, set train.eval_sequences for another "
           "number";
  }));
  EXPECT_EQ(continued({"train.eval_batches=50", "train.micro_batch=1"}, of_batches).config.train.eval_sequences, 100);
  EXPECT_EQ(continued({"train.eval_batches=9", "train.micro_batch=1"}, of_batches).config.train.eval_sequences, 9);
  EXPECT_EQ(continued({"train.eval_batches=0"}, of_batches).config.train.eval_sequences, 0);
  EXPECT_EQ(continued({"train.eval_sequences=9"}, stored).config.train.eval_sequences, 9);
  // What no longer fits says whose it is.
  RawConfig raw = parse_config(kMinimal, "test.toml", {"train.steps=1"});
  apply_run_values(raw, stored, "run/checkpoints/step-40");
  try {
    resolve(raw, facts());
    FAIL();
  } catch (const ConfigError& e) {
    expect_one(e.errors(), "schedule.warmup_steps = 2", "comes from run/checkpoints/step-40");
  }
}

// Other ranks: experts are divided over as many of the replicas as before, or the most that divide them.
TEST(Continued, ExpertRanksFitTheReplicasOfTheRun) {
  const std::string text = str_cat(kMinimal, "[moe]\nexperts = 8\n[mesh]\nexpert = 4\ndata = 4\n[vocab]\npad_to = 2\n");
  const auto expert_on = [&](int64_t ranks, const std::vector<std::string>& overrides = {}) {
    RawConfig raw = parse_config(text, "test.toml", overrides);
    raw.found_in_run("there", ranks);
    Facts given = facts();
    given.ranks = ranks;
    return resolve(raw, given).config.mesh.expert;
  };
  EXPECT_EQ(expert_on(4), 4);
  EXPECT_EQ(expert_on(12), 4);
  EXPECT_EQ(expert_on(6), 3);
  EXPECT_EQ(expert_on(2), 2);
  EXPECT_EQ(expert_on(1), 1);
  EXPECT_EQ(expert_on(4, {"mesh.tensor=2"}), 2);
  EXPECT_EQ(expert_on(12, {"mesh.expert=2"}), 2);
  EXPECT_THROW(expert_on(6, {"mesh.expert=4"}), ConfigError);
  EXPECT_EQ(resolve(parse_config(kMinimal, "test.toml", {}), facts()).config.mesh.expert, 1) << "of a dense run";
}

// Every key that is derived and free on resume is either kept, or is one that a new start has to derive.
TEST(Continued, NoDerivedKeyChangesOnResumeUnseen) {
  for (const KeySpec& spec : schema()) {
    if (spec.need != Need::kDerived || spec.fixed) continue;
    const std::string name = spec.name();
    const bool of_the_place = name == "run.dir" || name == "run.threads" || name == "mesh.data" ||
                              name == "train.micro_batch";  // the machine and its ranks, which may be others
    const bool of_a_fixed_key = is_of_optimizer(spec);      // of optimizer.kind
    EXPECT_TRUE(spec.kept || of_the_place || of_a_fixed_key) << name;
  }
}

}  // namespace
}  // namespace ashlar::config::testing
