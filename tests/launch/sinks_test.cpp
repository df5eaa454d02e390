// What each sink makes of the events of a run: lines for the user, rows of metrics.jsonl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "launch/training/events_file.h"
#include "launch/training/metrics_file.h"
#include "launch/training/terminal_sink.h"
#include "launch/version/version.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::training {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Every event of a run of four steps with a line every third.
void tell_a_run(MetricSink& sink) {
  config::RunConfig config;
  config.run.dtype = DType::kFloat32;
  sink.warning(StartsOver{.run_dir = "r", .rows = 2});
  sink.start({.config = config, .ranks = 1, .peak_flops = 12e9});
  for (int64_t step = 1; step <= 4; ++step)
    sink.step({.step = step, .total_steps = 4, .result = {.loss = 0.5 + static_cast<double>(step)}});
  sink.warning(RankSlow{.rank = 1, .host = "h", .ms = 3, .usual_ms = 1, .step = 4, .steps = 20});
  sink.statistics({.step = 4, .tensors = {{.name = "w", .weight_rms = 0.5, .grad_rms = 0.25}}, .residual_rms = {1, 2}});
  sink.validation({.step = 2, .result = {}, .seconds = 1});
  sink.validation(
      {.step = 4,
       .result =
           ValidationResult{
               .sources = {{"d", 1, 2.5, 7, 10}}, .loss = 2.5, .tokens = 7, .bytes = 10, .bits_per_byte = 2.25},
       .seconds = 3});
  sink.save({.step = 4, .ms = 0.5});
  sink.saved(
      {.step = 4, .bytes = 8, .seconds = 0.25, .best = {{.step = 4, .val_loss = 2.5}, {.step = 1, .val_loss = 3}}});
  sink.end({.step = 4,
            .total_steps = 4,
            .signal = {},
            .val_loss = 2.5,
            .val_bpb = 2.25,
            .memory = "2 MB",
            .device_memory = ""});
}

TEST(Sinks, TheTerminalHasALineForWhatAUserWants) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  TerminalSink sink(log, {.every = 3});
  tell_a_run(sink);
  EXPECT_THAT(
      lines,
      ElementsAre(StartsWith("no checkpoint was committed in 'r': the run starts over at step 0, and 2 earlier rows"),
                  "mfu is relative to 12 GFLOP/s of fp32, measured now on this machine with operands in registers",
                  StartsWith("step 1/4  loss 1.5000"), StartsWith("step 3/4  loss 3.0000"),
                  StartsWith("step 4/4  loss 4.5000"), StartsWith("warning: rank 1 on 'h' is slow: 3.0 ms"),
                  "step 2  the validation was interrupted; its loss is not written",
                  "step 4  val_loss 2.5000  val_bpb 2.2500  over 7 tokens in 3s",
                  "step 4  checkpoint kept as number 1 by val_loss, 2.5000 (the best first: 4, 1)",
                  "done: 4 steps  val_loss 2.5000  val_bpb 2.2500", "memory: peak of the process 2 MB"));
  lines.clear();
  sink.end({.step = 3, .total_steps = 4, .signal = "SIGTERM"});
  sink.end({.step = 4, .total_steps = 4, .signal = "SIGTERM"});
  EXPECT_THAT(lines, ElementsAre("SIGTERM: stopped after step 3 of 4; run the same command again to continue",
                                 "SIGTERM: stopped after the last step; run the same command again to validate"));
}

TEST(Sinks, TheFileHasARowForWhatIsMeasured) {
  const testing::ScratchDir dir;
  Log log([](std::string_view) {});
  {
    MetricsFile file(dir.file("metrics.jsonl"), 0, log, {}, [] { return 1.5e9; });
    tell_a_run(file);
  }
  std::vector<std::string> rows;
  std::ifstream in(dir.file("metrics.jsonl"));
  for (std::string row; std::getline(in, row);) rows.push_back(row);
  EXPECT_THAT(rows, ElementsAre(StartsWith(R"({"step":1,"loss":1.5,)"), StartsWith(R"({"step":2,)"),
                                StartsWith(R"({"step":3,)"), StartsWith(R"({"step":4,)"),
                                R"({"step":4,"stats":{"w":{"weight_rms":0.5,"grad_rms":0.25},)"
                                R"("embed":{"output_rms":1.0},"blocks.0":{"output_rms":2.0}},"time":1500000000.000})",
                                R"({"step":4,"val_loss":2.5,"val_bpb":2.25,"val_tokens":7,"val_bytes":10,)"
                                R"("val_seconds":3.0,"time":1500000000.000})",
                                R"({"step":4,"save_ms":0.5,"time":1500000000.000})"));
}

TEST(Sinks, TheEventsAreThoseBesideTheSteps) {
  const testing::ScratchDir dir;
  Log log([](std::string_view) {});
  config::RunConfig config;
  for (const int64_t step : {0, 4}) {
    EventsFile file(dir.file("events.jsonl"), log, {}, [] { return 1.5e9; });
    if (step == 0) {
      tell_a_run(file);
    } else {
      file.start({.config = config, .ranks = 2, .step = 4, .changes = {"train.steps was 4, is \xff"}});
      file.end({.step = 5, .total_steps = 9, .signal = "SIGTERM"});
      file.error({.step = 5, .code = ExitCode::kNonFinite, .text = "a \"loss\""});
    }
  }
  std::vector<std::string> rows;
  std::ifstream in(dir.file("events.jsonl"));
  for (std::string row; std::getline(in, row);) rows.push_back(row);
  const std::string start = str_cat(R"(,"version":")", launch::version(), R"(","commit":")", launch::commit(),
                                    R"(","compilers":")", launch::compilers(), R"(","ranks":)");
  EXPECT_THAT(
      rows,
      ElementsAre(StartsWith(R"({"time":1500000000.0,"event":"note","text":"no checkpoint was committed in 'r')"),
                  R"({"time":1500000000.0,"event":"start","step":0)" + start + R"(1,"device":"cpu","dtype":"fp32"})",
                  StartsWith(R"({"time":1500000000.0,"event":"warning","text":"rank 1 on 'h' is slow: 3.0 ms)"),
                  R"({"time":1500000000.0,"event":"save","step":4,"ms":0.5})",
                  R"({"time":1500000000.0,"event":"saved","step":4,"bytes":8,"seconds":0.25,"best":[4,1]})",
                  R"({"time":1500000000.0,"event":"end","step":4,"steps":4,"val_loss":2.5,"val_bpb":2.25})",
                  AllOf(StartsWith(R"({"time":1500000000.0,"event":"resume","step":4)" + start + R"(2,"device":"cpu")"),
                        ::testing::EndsWith("\"changes\":[\"train.steps was 4, is \xEF\xBF\xBD\"]}")),
                  R"({"time":1500000000.0,"event":"end","step":5,"steps":9,"signal":"SIGTERM"})",
                  R"({"time":1500000000.0,"event":"error","step":5,"code":4,"text":"a \"loss\""})"));
}

}  // namespace
}  // namespace ashlar::training
