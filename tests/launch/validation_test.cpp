// What a run says about the validation parts of its datasets.
#include "launch/training/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/training/terminal_sink.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

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
  EXPECT_EQ(to_lines(training::ValidationEvent{.step = 5, .result = r, .seconds = 1}).size(), 4u);
}

/// By hand: 4 targets of 2 bits each over 8 bytes are 1 bit a byte, 3 of 1 bit over 1 byte are 3; by weight 1.5.
TEST(Validation, BitsPerByteCountTheBytesOfTheTargets) {
  ValidationResult r{.sources = {{"a", 3, 2 * std::log(2.0), 4, 8}, {"b", 1, std::log(2.0), 3, 1}}, .mixture = true};
  EXPECT_DOUBLE_EQ(r.sources[0].bits_per_byte().value(), 1);
  EXPECT_DOUBLE_EQ(r.sources[1].bits_per_byte().value(), 3);
  combine(r);
  EXPECT_DOUBLE_EQ(r.bits_per_byte.value(), 1.5);
  EXPECT_EQ(r.bytes, 9);
  const auto lines = to_lines(training::ValidationEvent{.step = 5, .result = r, .seconds = 1});
  EXPECT_THAT(lines[0], HasSubstr("val_loss 1.3863  val_bpb 1.0000  over 4 tokens"));
  EXPECT_THAT(lines[2], HasSubstr("  val_bpb 1.5000  mean of 2 datasets"));
  r.sources[1].bytes = 0;
  combine(r);
  EXPECT_FALSE(r.bits_per_byte) << "a mean over some of the datasets would be of another thing";
  EXPECT_THAT(to_lines(training::ValidationEvent{.step = 5, .result = r, .seconds = 1}).back(),
              HasSubstr("val_bpb n/a (the targets stand for no text)"));
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

double last_loss(const testing::RunFixture& run, const std::string& dir) {
  const auto rows = validations(run, dir);
  return rows.empty() ? -1 : rows.back().at("val_loss").get<double>();
}

/// The number behind the last "val_loss ".
double loss_said(const std::string& text) {
  const size_t at = text.rfind("val_loss ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + 9));
}

/// With characters of one, two and three bytes, whose tail is the validation part: the end of the document has a loss
/// and no bytes, the first character of the part is no target.
TEST(Validation, BitsPerByteAreOfTheTextThatWasEvaluated) {
  const testing::RunFixture run;
  constexpr int64_t kRepeats = 500, kCharacters = 4, kBytes = 7;  // a, b, e-acute (2 bytes), a Han character (3)
  std::string text;
  for (int64_t i = 0; i < kRepeats; ++i) text += "ab\u00e9\u4e16";
  run.write("cycle.txt", text);
  ASSERT_EQ(run.ashlar("data build cycle.txt --out set --tokenizer characters --validation 0.2").code, 0);
  const auto r = run.ashlar(
      "train tiny.toml data.path=set run.dir=r train.steps=2 schedule.warmup_steps=1 checkpoint.every=0 "
      "train.eval_sequences=0");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto row = validations(run, "r").back();
  const int64_t tokens = row.at("val_tokens"), bytes = row.at("val_bytes"), whole = (tokens - 1) / kCharacters;
  ASSERT_NEAR(tokens, kRepeats * kCharacters / 5, 8);
  const int64_t rest = (tokens - 1) % kCharacters;  // characters before the whole repeats, from the end of one
  EXPECT_EQ(bytes, whole * kBytes + (rest == 0 ? 0 : rest == 1 ? 3 : rest == 2 ? 5 : 6));
  const double bpb = row.at("val_bpb"), loss = row.at("val_loss");
  EXPECT_NEAR(bpb, loss * static_cast<double>(tokens) / static_cast<double>(bytes) / std::log(2.0), 1e-12);
  char said[32];
  std::snprintf(said, sizeof(said), "  val_bpb %.4f  ", bpb);
  EXPECT_THAT(r.out, HasSubstr(said));
  EXPECT_THAT(r.out, HasSubstr("done: 2 steps  val_loss "));
  const auto eval = run.ashlar("eval r");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr(said));
}

/// The same weights have one loss: on any mesh, with any micro-batch, and in `eval`.
TEST(Validation, IsThatOfTheSequencesOnAnyMesh) {
  const testing::RunFixture run;
  const std::string words =
      " tiny.toml run.dtype=fp64 dropout.resid=0 dropout.attn=0 train.steps=1 schedule.warmup_steps=1 vocab.pad_to=2 "
      "checkpoint.every=0 log.stats_every=1 train.eval_sequences=13 run.dir=";
  ASSERT_EQ(run.ashlar("train" + words + "one").code, 0);
  const double expected = last_loss(run, "one");
  EXPECT_EQ(validations(run, "one").back().at("val_tokens"), 13 * 16);
  const int64_t bytes = validations(run, "one").back().at("val_bytes");
  const double bpb = validations(run, "one").back().at("val_bpb");
  EXPECT_GT(bytes, 12 * 16);
  const auto residual = [&](const std::string& dir) {
    std::vector<double> rms;
    std::istringstream rows(run.read(dir + "/metrics.jsonl"));
    for (std::string line; std::getline(rows, line);) {
      const auto row = nlohmann::json::parse(line);
      if (!row.contains("stats")) continue;
      for (const char* name : {"embed", "blocks.0", "blocks.1", "blocks.2"})
        rms.push_back(row.at("stats").at(name).at("output_rms"));
    }
    return rms;
  };
  ASSERT_EQ(residual("one").size(), 4U);
  int n = 0;
  for (const char* other : {"train:train.micro_batch=1", "train:train.micro_batch=4", "launch -np 2 train:mesh.data=2",
                            "launch -np 2 train:mesh.tensor=2 mesh.sequence_parallel=true",
                            "launch -np 4 train:mesh.pipeline=2 mesh.data=2 train.micro_batch=1"}) {
    const std::string way = other, dir = "other" + std::to_string(++n);
    const size_t colon = way.find(':');
    const auto r = run.ashlar(way.substr(0, colon) + words + dir + " " + way.substr(colon + 1));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NEAR(last_loss(run, dir), expected, 1e-12 * expected) << way;
    EXPECT_EQ(validations(run, dir).back().at("val_bytes"), bytes) << way;
    EXPECT_NEAR(validations(run, dir).back().at("val_bpb").get<double>(), bpb, 1e-12 * bpb) << way;
    const std::vector<double> got = residual(dir), right = residual("one");
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(got[i], right[i], 1e-12 * right[i]) << way << " " << i;
  }
  for (const char* way :
       {"eval one --sequences 13", "eval one --sequences 13 --batch 5", "launch -np 2 eval one --sequences 13",
        "eval one --batches 13 --batch 1", "launch -np 2 eval one --tensor 2 --sequences 13 --batch 1"}) {
    const auto r = run.ashlar(way);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NEAR(loss_said(r.out), expected, 1e-12 * expected) << way;
  }
  EXPECT_EQ(run.ashlar("eval one --sequences 3 --batches 2").code, 2);
}

/// train.eval_batches of a file says its sequences once; the run keeps them.
TEST(Validation, TheOlderKeyIsSettledWhenTheRunBegins) {
  const testing::RunFixture run;
  std::string text = run.read("tiny.toml");
  text.replace(text.find("eval_sequences = 6"), 18, "eval_batches = 3");
  run.write("old.toml", text);
  const std::string words = " old.toml run.dir=r checkpoint.every=0 train.eval_every=0 train.steps=";
  const auto first = run.ashlar("train" + words + "5");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out,
              HasSubstr("train.eval_sequences = 6 (train.eval_batches 3 * train.micro_batch 2 * mesh.data 1"));
  EXPECT_THAT(run.read("r/config.toml"), HasSubstr("eval_sequences = 6\n"));
  EXPECT_THAT(run.read("r/config.toml"), Not(HasSubstr("eval_batches")));
  const auto again = run.ashlar("launch -np 2 train" + words + "6 mesh.data=2");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("train.eval_batches = 3 was applied when the run began"));
  ASSERT_EQ(validations(run, "r").size(), 2U);
  for (const auto& row : validations(run, "r")) EXPECT_EQ(row.at("val_tokens"), 6 * 16);
}

/// A sequence far longer than the part costs what the part holds, and says the same.
TEST(Validation, BeyondTheEndOfThePartNothingIsComputed) {
  const testing::RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml run.dir=r train.steps=6 train.eval_sequences=1").code, 0);
  const auto whole = run.ashlar("eval r --sequence-length 4000");
  const auto far = run.ashlar("eval r --sequence-length 1000000 --batch 16");
  ASSERT_EQ(far.code, 0) << far.err;
  EXPECT_NEAR(loss_said(far.out), loss_said(whole.out), 2e-6);
  const int length = testing::under_address_sanitizer() ? 2048 : 8192;
  const auto trained = run.ashlar(str_cat("train tiny.toml run.dir=long train.steps=1 train.sequence_length=", length,
                                          " schedule.warmup_steps=1 "
                                          "train.global_batch=1 train.micro_batch=1 checkpoint.every=0"));
  EXPECT_EQ(trained.code, 0) << trained.err;
}

/// A source in which no valid targets has no loss: 0 would be a good one.
TEST(Validation, ASourceWithoutACountedTargetIsLeftOut) {
  const testing::RunFixture run;
  // Token files hold what no text gives: ends of documents that are all empty.
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (3000,), }";
  header.resize(117, ' ');
  std::string npy = "\x93NUMPY\x01";
  npy += std::string("\x00\x76\x00", 3) + header + "\n";
  for (int i = 0; i < 3000; ++i) npy += std::string("\x00\x01", 2);  // 256
  run.write("ends.npy", npy);
  ASSERT_EQ(run.ashlar("data build ends.npy --out empty --validation 0.3").code, 0);
  const std::string words =
      "train tiny.toml data.document_mask=true train.steps=1 schedule.warmup_steps=1 checkpoint.every=0 run.dir=";
  const std::string mixture = " 'data.path=[{path=\"data\",weight=1},{path=\"empty\",weight=3}]'";
  const auto mixed = run.ashlar(words + "mixed" + mixture);
  ASSERT_EQ(mixed.code, 0) << mixed.err;
  const std::string said =
      "'empty' has no token that the loss counts in the 6 sequences of its validation part, so it is not part of ";
  EXPECT_THAT(mixed.out, HasSubstr(said));
  const auto rows = validations(run, "mixed");
  ASSERT_EQ(rows.size(), 1U);
  ASSERT_EQ(rows[0].at("val_sources").size(), 1U);
  EXPECT_EQ(rows[0].at("val_loss"), rows[0].at("val_sources")[0].at("val_loss"));
  EXPECT_GT(rows[0].at("val_loss").get<double>(), 4);
  const auto eval = run.ashlar("eval mixed --sequences 6");
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr(said));
  EXPECT_NEAR(loss_said(eval.out), rows[0].at("val_loss").get<double>(), 2e-6);
  // Alone it has none at all.
  const auto none = run.ashlar("eval mixed --data empty");
  EXPECT_EQ(none.code, 2) << none.out;
  EXPECT_THAT(none.err, HasSubstr("expected a validation part with targets that are not masked"));
  ValidationResult r{.sources = {}, .uncounted = {{"a", 3}}, .mixture = true};
  combine(r);
  EXPECT_EQ(r.loss, 0);
  EXPECT_EQ(to_lines(training::ValidationEvent{.step = 5, .result = r, .seconds = 1}).size(), 1U);
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
      "train.steps=2 schedule.warmup_steps=1 train.eval_every=0 train.eval_sequences=6 checkpoint.every=0 ";
  const auto r = run.ashlar("train tiny.toml run.dir=mixed " + small + mixture);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string said = r.out + r.err;
  EXPECT_THAT(said, HasSubstr("bare has no validation part: it is not part of val_loss"));
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

  const auto both = run.ashlar("eval mixed --sequences 6");
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
  const auto alone = run.ashlar("eval mixed --sequences 6 --data other");
  ASSERT_EQ(alone.code, 0);
  EXPECT_NEAR(std::stod((alone.out + alone.err).substr((alone.out + alone.err).find("val_loss ") + 9)), text, 2e-6);
  // More batches than 64 bits hold sequences are the whole part.
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
