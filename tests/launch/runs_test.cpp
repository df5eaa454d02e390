// Reading runs after the fact: ashlar runs, plot and compare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "launch/runs/comparison.h"
#include "launch/runs/curve.h"
#include "launch/runs/run_folder.h"
#include "launch/runs/statistics.h"
#include "launch/training/directory_lock.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void expect_one_error(const ShellResult& r, const std::string& words) {
  EXPECT_EQ(r.code, kInput) << r.err;
  EXPECT_THAT(r.err, HasSubstr(words));
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  EXPECT_THAT(r.out, IsEmpty());
}

/// A metrics.jsonl whose loss at step s is `base` + 1 / s, validated every ten steps.
std::string metrics_of(double base, int steps) {
  std::string text;
  for (int s = 1; s <= steps; ++s) {
    text += str_cat("{\"step\":", s, ",\"loss\":", base + 1.0 / s, ",\"tokens\":", s * 100,
                    ",\"step_ms\":500,\"tokens_per_sec\":200,\"time\":", 1000 + s, "}\n");
    if (s % 10 == 0) text += str_cat("{\"step\":", s, ",\"val_loss\":", base + 2, "}\n");
  }
  return text;
}

TEST(RunFolderFiles, AreReadAsFarAsTheyAreThere) {
  const RunFixture run;
  fs::create_directories(run.dir() / "old");
  run.write("old/metrics.jsonl", metrics_of(3, 20) + "not a row\n{\"step\":21,\"loss\":1}\n{\"step\":22,\"lo");
  const runs::RunFolder old = runs::read_run(run.dir() / "old");
  EXPECT_EQ(old.step(), 21) << "the torn line is no row";
  EXPECT_EQ(old.series("loss").size(), 21u);
  EXPECT_DOUBLE_EQ(old.series("loss")[19].seconds, 10);
  EXPECT_DOUBLE_EQ(old.series("val_loss")[1].tokens, 2000);
  EXPECT_THAT(old.problems, ElementsAre(HasSubstr("metrics.jsonl: 1 line is not a row")));
  EXPECT_FALSE(old.config);
  EXPECT_EQ(old.state, runs::RunState::kBroken);
}

TEST(RunFolderFiles, RepeatedStepsReplaceTheEarlierOnes) {
  const RunFixture run;
  fs::create_directories(run.dir() / "twice");
  run.write("twice/metrics.jsonl", metrics_of(3, 20) + "{\"step\":11,\"loss\":1,\"step_ms\":500}\n");
  const runs::RunFolder twice = runs::read_run(run.dir() / "twice");
  ASSERT_EQ(twice.series("loss").size(), 11u);
  EXPECT_EQ(twice.series("loss").back().value, 1);
  EXPECT_DOUBLE_EQ(twice.series("loss").back().seconds, 5.5);
}

TEST(RunFolderFiles, TellTheState) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 checkpoint.every=2").code, 0);
  const auto state = [&] { return runs::read_run(run.dir() / "run").state_text(); };
  EXPECT_EQ(state(), "finished");
  const std::string events = run.read("run/events.jsonl");
  const std::string begun = events.substr(0, events.find('\n') + 1);
  run.write("run/committed.json", "{\"committed_step\":4}\n");
  run.write("run/events.jsonl", begun + "{\"event\":\"end\",\"step\":4,\"steps\":6,\"signal\":\"SIGTERM\"}\n");
  EXPECT_EQ(state(), "stopped by SIGTERM at 4, resumable at 4");
  run.write("run/events.jsonl", begun + "{\"event\":\"error\",\"step\":5,\"code\":4,\"text\":\"x\"}\n");
  EXPECT_EQ(state(), "failed with 4 at 5, resumable at 4");
  run.write("run/events.jsonl", begun);
  EXPECT_EQ(state(), "broken off at 6, resumable at 4");
  run.write("run/.lock", training::to_text(training::this_process()));
  EXPECT_EQ(state(), "running");
}

TEST(RunsCommand, ListsRunsAndWhatItSkips) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=runs/deep/good").code, 0);
  fs::create_directories(run.dir() / "runs/none");
  fs::create_directories(run.dir() / "runs/old");
  run.write("runs/old/metrics.jsonl", metrics_of(3, 20));
  const ShellResult table = run.ashlar("runs");
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("deep/good"));
  EXPECT_THAT(table.out, HasSubstr("6/6"));
  EXPECT_THAT(table.err, HasSubstr("skipped 'runs/none'"));
  const json all = json::parse(run.ashlar("runs runs --json --sort loss").out);
  ASSERT_EQ(all.at("runs").size(), 2u);
  EXPECT_THAT(all.at("skipped"), ElementsAre("runs/none"));
  for (const json& one : all.at("runs")) {
    const bool good = one.at("name") == "good";
    EXPECT_EQ(one.at("state"), good ? "finished" : "broken off");
    EXPECT_EQ(one.contains("parameters"), good);
    if (!good) {
      EXPECT_EQ(one.at("best_val_loss"), 5);
      EXPECT_EQ(one.at("best_val_step"), 10);
      double mean = 0;
      for (int s = 1; s <= 20; ++s) mean += (3 + 1.0 / s) / 20;
      EXPECT_NEAR(one.at("loss"), mean, 1e-5) << "rows have six digits";
    }
  }
  expect_one_error(run.ashlar("runs nowhere"), "nothing of that name");
  expect_one_error(run.ashlar("plot runs/none"), "a directory with neither");
  expect_one_error(run.ashlar("compare runs/old runs/deep/good"), "no config.toml");
}

TEST(PlotCommand, DrawsWithin80Columns) {
  const RunFixture run;
  for (const char* name : {"a", "b"}) fs::create_directories(run.dir() / name);
  run.write("a/metrics.jsonl", metrics_of(3, 50));
  run.write("b/metrics.jsonl", metrics_of(4, 50));
  for (const char* words :
       {"plot a --ascii", "plot a b", "plot a b --log --x tokens --smooth 5", "plot a --x time --ascii"}) {
    const ShellResult r = run.ashlar(words);
    ASSERT_EQ(r.code, 0) << r.err;
    std::istringstream lines(r.out);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
    }
    EXPECT_LE(count, 24);
  }
  const std::string low = run.ashlar("plot a --height 10").out;
  EXPECT_EQ(std::count(low.begin(), low.end(), '\n'), 10);
  EXPECT_THAT(run.ashlar("plot a").out, HasSubstr("\xe2\xa0")) << "Braille";
  const std::string both = run.ashlar("plot a b").out;
  // The first row of the plot holds the highest value: b's validation, which the letter B marks.
  EXPECT_THAT(both.substr(0, both.find("+-")), HasSubstr("B"));
  ASSERT_EQ(run.ashlar("plot a b --svg out.svg").code, 0);
  const std::string svg = run.read("out.svg");
  EXPECT_EQ(svg.find("<svg xmlns="), 0u);
  size_t marks = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++marks;
  EXPECT_EQ(marks, 10u) << "five validations of two runs";
  expect_one_error(run.ashlar("plot a --key los"), "did you mean loss?");
  expect_one_error(run.ashlar("plot"), "expected 1 to 26 run directories");
}

/// The data of a report.
json data_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = html.find(begin) + begin.size();
  return json::parse(html.substr(at, html.find("</script>", at) - at));
}

TEST(ReportCommand, HoldsAllRunsAndNeedsNothingElse) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 'run.dir=<!--<script>'").code, 0);
  fs::create_directories(run.dir() / "old");
  run.write("old/metrics.jsonl", metrics_of(3, 5000));
  const ShellResult r = run.ashlar("report old '<!--<script>' -o page.html");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string html = run.read("page.html");
  EXPECT_EQ(html.find("http"), html.find("http://www.w3.org/2000/svg")) << "the name of SVG is the only address";
  EXPECT_EQ(html.find("<!--<script>"), std::string::npos);
  const json data = data_of(html);
  ASSERT_EQ(data.at("runs").size(), 2u);
  EXPECT_EQ(data.at("runs")[1].at("name"), "<!--<script>");
  EXPECT_EQ(data.at("runs")[1].at("events")[0].at("kind"), "start");
  EXPECT_EQ(data.at("runs")[1].at("layout"), "tensor 1, pipeline 1, data 1");
  const json& loss = data.at("runs")[0].at("series").at("loss");
  EXPECT_LE(loss[0].size(), 2000u);
  EXPECT_EQ(loss[0][0], 1);
  EXPECT_EQ(loss[0].back(), 5000) << "a decreasing curve keeps its ends";
  EXPECT_EQ(loss[3].size(), loss[0].size());
  for (const json& row : data.at("keys"))
    if (row.at("key") == "norm.type") {
      EXPECT_EQ(row.at("values")[0], "") << "a run without config.toml";
      EXPECT_THAT(row.at("who")[1].get<std::string>(), HasSubstr(" published: "));
    }
  expect_one_error(run.ashlar("report"), "expected 1 to 50 run directories");
  expect_one_error(run.ashlar("report old nowhere -o other.html"), "nothing of that name");
  EXPECT_FALSE(fs::exists(run.dir() / "other.html"));
}

TEST(ReportCommand, PutsThePlanBesideTheStepsAfterTheLastStart) {
  const RunFixture run;
  fs::create_directories(run.dir() / "planned");
  run.write("planned/metrics.jsonl", metrics_of(3, 20) + "{\"step\":20,\"save_ms\":250}\n");
  run.write("planned/events.jsonl",
            R"({"time":1,"event":"start","step":0,"plan":{"device":"d","memory":{"bytes":1},"time":{"step_seconds":9}}}
{"time":2,"event":"sample","step":10,"prompt":"<b>","text":"</script>"}
{"time":3,"event":"save","step":10,"ms":250,"val_loss":5}
{"time":4,"event":"resume","step":10,"plan":{"device":"d","memory":{"bytes":1},"capacity_bytes":0,)"
            R"("time":{"step_seconds":0.4,"low":0.3,"high":0.6,"tokens_per_second":250}}}
)");
  ASSERT_EQ(run.ashlar("report planned -o page.html").code, 0);
  const json data = data_of(run.read("page.html")).at("runs")[0];
  EXPECT_THAT(data.at("plan"), ElementsAre(json({"time of a step", "400 ms (300 to 600)", "500 ms", "+25.0%"}),
                                           json({"tokens per second", "250", "200", "-20.0%"})));
  EXPECT_EQ(data.at("samples")[0].at("text"), "</script>");
  EXPECT_EQ(data.at("spent").at("saves"), 0.25);
  EXPECT_EQ(data.at("spent").at("steps"), 10);
  EXPECT_EQ(data.at("events").size(), 3u) << "samples have a table of their own";
  EXPECT_EQ(data.at("events")[1].at("text"), "training waited 250 ms, val_loss 5");
}

TEST(ReportCommand, NamesTheMeshCoordinatesOfEachRank) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("launch -np 4 train tiny.toml train.steps=6 mesh.pipeline=2 vocab.pad_to=2 mesh.tensor=2").code,
            0);
  ASSERT_EQ(run.ashlar("report run -o page.html").code, 0);
  const json data = data_of(run.read("page.html")).at("runs")[0];
  EXPECT_THAT(data.at("ranks"),
              ElementsAre(json({0, 0, 0, 0, 0}), json({1, 0, 0, 0, 1}), json({2, 1, 0, 0, 0}), json({3, 1, 0, 0, 1})));
  EXPECT_EQ(data.at("plan").back()[0], "bubble; measured: the busiest rank waits");
}

TEST(PlotAxis, HasRoundTicks) {
  const runs::Curve curve{.name = "x", .line = {{0, 0.9}, {100, 11}}, .marks = {}};
  EXPECT_THAT(runs::x_range({curve}, 5).ticks, ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(runs::y_range({curve}, 4, true).ticks, ElementsAre(1, 10));
}

TEST(RunStatistics, EqualPublishedQuantiles) {
  // Tables of Student's t, two-sided 95%.
  for (const auto& [freedom, t] : {std::pair(1.0, 12.706), {2.0, 4.303}, {4.0, 2.776}, {10.0, 2.228}, {30.0, 2.042}})
    EXPECT_NEAR(runs::student_t(0.95, freedom), t, 5e-4);
  const std::vector<double> a = {1, 2, 3}, b = {3, 5, 4};
  // Differences 2, 3, 1: mean 2, deviation 1.
  const runs::Difference paired = runs::paired_difference(a, b);
  EXPECT_DOUBLE_EQ(paired.mean, 2);
  EXPECT_NEAR(paired.interval->first, 2 - 4.3027 / std::sqrt(3.0), 1e-4);
  // Both variances are 1, so Welch's degrees of freedom are 4.
  const runs::Difference welch = runs::independent_difference(a, b);
  EXPECT_NEAR(welch.interval->second, 2 + 2.7764 * std::sqrt(2.0 / 3), 1e-4);
  EXPECT_FALSE(runs::independent_difference(a, std::vector<double>{1}).interval);
}

TEST(CompareCommand, GroupsSeedsAndStatesIntervals) {
  const RunFixture run;
  for (const int seed : {1, 2})
    for (const char* lr : {"1e-3", "1e-2"})
      ASSERT_EQ(run.ashlar(str_cat("train tiny.toml train.steps=8 optimizer.lr=", lr, " run.seed=", seed,
                                   " checkpoint.every=0 run.dir=lr", lr, "-", seed))
                    .code,
                0);
  const json found = json::parse(run.ashlar("compare lr1e-3-1 lr1e-2-1 lr1e-2-2 lr1e-3-2 --json").out);
  const json named = json::parse(run.ashlar("compare lr1e-3-1,lr1e-3-2 lr1e-2-1,lr1e-2-2 --json").out);
  EXPECT_EQ(found, named);
  ASSERT_EQ(found.at("groups").size(), 2u);
  EXPECT_THAT(found.at("groups")[1].at("runs"), ElementsAre("lr1e-2-1", "lr1e-2-2"));
  const json& all = found.at("comparisons")[0];
  ASSERT_EQ(all.at("keys").size(), 1u);
  EXPECT_EQ(all.at("keys")[0].at("key"), "optimizer.lr");
  EXPECT_EQ(all.at("keys")[0].at("with"), "0.001");
  bool last_step = false;
  for (const json& v : all.at("values")) {
    EXPECT_TRUE(v.at("paired"));
    EXPECT_LE(v.at("low"), v.at("difference"));
    EXPECT_GE(v.at("high"), v.at("difference"));
    if (v.at("metric") != "loss" || v.at("axis") != "step" || v.at("at") != 8) continue;
    last_step = true;
    const auto mean = [&](const std::string& dir) {
      double sum = 0;
      for (const double loss : run.metric(dir, "loss")) sum += loss / 8;
      return sum;
    };
    EXPECT_NEAR(v.at("group")[1], mean("lr1e-2-2"), 1e-9);
    EXPECT_NEAR(v.at("difference"), (mean("lr1e-2-1") + mean("lr1e-2-2") - mean("lr1e-3-1") - mean("lr1e-3-2")) / 2,
                1e-9);
  }
  EXPECT_TRUE(last_step);
  EXPECT_THAT(run.ashlar("compare lr1e-3-1 lr1e-2-1").out, HasSubstr("(no interval: one run)"));
  expect_one_error(run.ashlar("compare lr1e-3-1,lr1e-2-1 lr1e-2-2"), "optimizer.lr = 0.001 and 0.01");
  expect_one_error(run.ashlar("compare lr1e-3-1"), "expected 2 to 26 runs");
}

}  // namespace
}  // namespace ashlar::testing
