// Traced steps: what the summary makes of slices whose figures are computed by hand, clocks, files, and real runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "launch/trace/chrome_trace.h"
#include "launch/trace/clock_offset.h"
#include "launch/trace/step_summary.h"
#include "launch/trace/summary_report.h"
#include "launch/trace/trace_file.h"
#include "parallel/pipeline/simulate.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using pipeline::ActionKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using trace::Interval;
using trace::RankTrace;
using trace::StepTrace;

constexpr int64_t kMs = 1'000'000;

/// Adds an action from `begin` to `end`, in ms, which waits for the other stage until `ready`.
void act(RankTrace& rank, ActionKind kind, int64_t micro_batch, int64_t begin, int64_t ready, int64_t end) {
  rank.actions.push_back({.action = {.kind = kind, .micro_batch = micro_batch}, .time = {begin * kMs, end * kMs}});
  if (ready == begin) return;
  rank.operations.push_back({.kind = comm::OperationKind::kRecv, .bytes = 64, .time = {begin * kMs, ready * kMs}});
  rank.calls.push_back(rank.operations.back());
}

/// Two stages and two micro-batches in 1f1b. A forward takes 10 ms on stage 0 and `slow` on stage 1, a backward 20:
///   stage 0   F0 F1 .. .. B0 B0 .. B1 B1        with slow = 10
///   stage 1   .. F0 B0 B0 F1 B1 B1
StepTrace two_stages(int64_t slow) {
  StepTrace step{.step = 7,
                 .mesh = {{Axis::kPipeline, 2}},
                 .schedule = {.kind = pipeline::PipelineSchedule::k1F1B, .stages = 2, .micro_batches = 2}};
  RankTrace first{.host = "a", .communicators = {"pipeline"}}, second = first;
  using enum ActionKind;
  const int64_t f0 = 10 + slow, b0 = f0 + 20, f1 = b0 + slow, b1 = f1 + 20;  // ends on stage 1
  act(first, kForward, 0, 0, 0, 10);
  act(first, kForward, 1, 10, 10, 20);
  act(first, kBackward, 0, 20, b0, b0 + 20);
  act(first, kBackward, 1, b0 + 20, b1, b1 + 20);
  act(second, kForward, 0, 0, 10, f0);
  act(second, kBackward, 0, f0, f0, b0);
  act(second, kForward, 1, b0, b0, f1);
  act(second, kBackward, 1, f1, f1, b1);
  for (RankTrace* rank : {&first, &second})
    rank->parts.push_back({.part = trace::Part::kForwardBackward, .time = {0, (b1 + 20) * kMs}});
  step.ranks = {first, second};
  return step;
}

TEST(TraceSummary, BubbleIsWhatTheScheduleLeavesIdle) {
  const trace::StepSummary equal = trace::summary_of(two_stages(10));
  // 90 ms, of which each stage computes for 60.
  EXPECT_DOUBLE_EQ(equal.step_ms, 90);
  EXPECT_NEAR(equal.ranks[0].bubble, 1 / 3.0, 1e-12);
  EXPECT_NEAR(equal.ranks[1].bubble, 1 / 3.0, 1e-12);
  EXPECT_NEAR(*equal.bubble, 1 / 3.0, 1e-12);
  EXPECT_NEAR(equal.planned_bubble, 1 / 3.0, 1e-12) << "(P - 1) / (M + P - 1)";
  EXPECT_NEAR(*equal.matched_bubble, 1 / 3.0, 1e-12);

  const trace::StepSummary slow = trace::summary_of(two_stages(20));
  // 110 ms; stage 0 computes for 60, stage 1 for 80.
  EXPECT_NEAR(slow.ranks[0].bubble, 50 / 110.0, 1e-12);
  EXPECT_NEAR(slow.ranks[1].bubble, 30 / 110.0, 1e-12);
  EXPECT_NEAR(*slow.bubble, 80 / 220.0, 1e-12);
  EXPECT_NEAR(slow.planned_bubble, 1 / 3.0, 1e-12) << "of equal chunks, as before";
  EXPECT_NEAR(*slow.matched_bubble, 80 / 220.0, 1e-12) << "the simulator with the measured times";
}

TEST(TraceSummary, TransfersAreNoWork) {
  StepTrace step = two_stages(10);
  step.ranks[1].actions.push_back({.action = {.kind = ActionKind::kTransfer, .peer = 0}, .time = {75 * kMs, 79 * kMs}});
  EXPECT_NEAR(trace::summary_of(step).ranks[1].bubble, 1 / 3.0, 1e-12);
}

TEST(TraceSummary, BackwardsOfWeightsHaveTimesOfTheirOwn) {
  StepTrace step{.mesh = {{Axis::kPipeline, 2}},
                 .schedule = {.kind = pipeline::PipelineSchedule::kZbH1, .stages = 2, .micro_batches = 3}};
  RankTrace rank{.communicators = {"pipeline"}};
  for (int64_t m = 0; m < 3; ++m) {
    act(rank, ActionKind::kForward, m, 100 * m, 100 * m, 100 * m + 10);
    act(rank, ActionKind::kBackwardInput, m, 100 * m + 20, 100 * m + 20, 100 * m + 38);
    act(rank, ActionKind::kBackwardWeight, m, 100 * m + 40, 100 * m + 40, 100 * m + 44);
  }
  step.ranks = {rank, rank};
  const pipeline::Costs costs = pipeline::Costs::uniform(step.schedule, 10, 18, 4);
  const double expected =
      pipeline::simulate(step.schedule, pipeline::make_schedules(step.schedule), costs).bubble_fraction;
  EXPECT_NEAR(*trace::summary_of(step).matched_bubble, expected, 1e-12);
}

TEST(TraceSummary, SlowestRankComputesLongestWithoutItsWaits) {
  const trace::StepSummary s = trace::summary_of(two_stages(20));
  // Forward and backward last 110 ms on both; stage 0 waits for 30 + 20 ms, stage 1 for 10.
  EXPECT_DOUBLE_EQ(s.ranks[0].computed_ms, 60);
  EXPECT_DOUBLE_EQ(s.ranks[1].computed_ms, 100);
  EXPECT_DOUBLE_EQ(s.ranks[0].communicated_ms, 50);
  EXPECT_EQ(s.slowest, 1);
  EXPECT_DOUBLE_EQ(s.slowest_by_ms, 40);
  EXPECT_DOUBLE_EQ(s.communicated_ms.at("pipeline"), 30);
}

TEST(TraceSummary, HiddenCommunicationIsUnderWayWhileTheRankDoesNotWait) {
  StepTrace step = two_stages(10);
  for (RankTrace& rank : step.ranks) rank.operations.clear(), rank.calls.clear();
  RankTrace& rank = step.ranks[1];
  rank.communicators = {"replica", "control"};
  using enum comm::OperationKind;
  // On buffers from 10 to 40 and from 50 to 60 ms; the rank waits from 30 to 40, and for host values from 55 to 70.
  rank.operations = {{.kind = kReduceScatter, .time = {10 * kMs, 30 * kMs}},
                     {.kind = kAllGather, .time = {20 * kMs, 40 * kMs}},
                     {.kind = kAllGather, .time = {50 * kMs, 60 * kMs}},
                     {.kind = kHostReduce, .communicator = 1, .time = {0, 90 * kMs}}};
  rank.calls = {{.kind = kAllGather, .time = {30 * kMs, 40 * kMs}},
                {.kind = kHostReduce, .communicator = 1, .time = {55 * kMs, 70 * kMs}}};
  const trace::StepSummary s = trace::summary_of(step);
  EXPECT_DOUBLE_EQ(s.ranks[0].under_way_ms, 0);
  EXPECT_DOUBLE_EQ(s.ranks[1].under_way_ms, 40);
  EXPECT_DOUBLE_EQ(s.ranks[1].hidden_ms, 25);
  EXPECT_DOUBLE_EQ(*s.hidden, 25 / 40.0);
  EXPECT_DOUBLE_EQ(s.ranks[1].communicated_ms, 25);
  EXPECT_NEAR(s.ranks[1].bubble, 20 / 90.0, 1e-12) << "calls for replicas are no bubble";
}

TEST(TraceSummary, WhatADeviceRanIsNotMeasuredByTheHost) {
  StepTrace step = two_stages(10);
  step.asynchronous = true;
  const trace::StepSummary s = trace::summary_of(step);
  EXPECT_FALSE(s.bubble);
  EXPECT_FALSE(s.matched_bubble);
  EXPECT_FALSE(s.hidden);
  EXPECT_FALSE(s.slowest);
  EXPECT_NEAR(s.planned_bubble, 1 / 3.0, 1e-12);
  const std::vector<std::string> lines = trace::summary_lines(step, s, std::nullopt);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("planned 33.3%"), HasSubstr("not measured"), HasSubstr("host")));
  EXPECT_TRUE(trace::summary_json(step, s, std::nullopt).at("bubble").is_null());
}

TEST(TraceClocks, BarriersBoundTheOffsetFromBothSides) {
  // This clock is 1000 ns behind; it enters the first barrier last, and leaves the second one last.
  const std::vector<Interval> first = {{1000, 1100}, {1200, 1300}};
  const std::vector<Interval> own = {{80, 105}, {190, 330}};
  // Bounds: first.begin - own.end: 895, 870; first.end - own.begin: 1020, 1110. So 895 .. 1020.
  const trace::ClockOffset offset = trace::offset_between(own, first, false);
  EXPECT_EQ(offset.offset, 957);
  EXPECT_EQ(offset.uncertainty, 63);
  EXPECT_LE(std::abs(offset.offset - 1000), offset.uncertainty);
  EXPECT_EQ(trace::offset_between(own, first, true).offset, 957) << "0 is not possible, so they read different clocks";
  const trace::ClockOffset one = trace::offset_between(first, first, true);
  EXPECT_EQ(one.offset, 0);
  EXPECT_EQ(one.uncertainty, 0);
}

TEST(TraceClocks, DriftIsSpreadOverTheStep) {
  const trace::ClockLine clock({.at = 1000, .offset = {.offset = 50, .uncertainty = 3}},
                               {.at = 2000, .offset = {.offset = 150, .uncertainty = 5}});
  EXPECT_EQ(clock.on_first_rank(1000), 1050);
  EXPECT_EQ(clock.on_first_rank(1500), 1600);
  EXPECT_EQ(clock.on_first_rank(2000), 2150);
  EXPECT_EQ(clock.on_first_rank(3000), 3150);
  EXPECT_EQ(clock.uncertainty(), 5);
}

std::string text_of_file(const StepTrace& step) {
  std::vector<std::string> ranks;
  for (const RankTrace& rank : step.ranks) ranks.push_back(trace::rank_text(rank, [](int64_t ns) { return ns - 5; }));
  return trace::file_text(step, ranks);
}

TEST(TraceFile, GivesBackWhatWasWritten) {
  const ScratchDir dir;
  StepTrace step = two_stages(10);
  step.unix_time = 1.5e9;
  step.ranks[0].host = "odd \"name\"\n";
  step.ranks[1].clock_offset = -7;
  step.ranks[1].clock_uncertainty = 9;
  step.ranks[1].dropped = 2;
  const pipeline::Message message{.payload = pipeline::Payload::kGradient, .micro_batch = 1, .chunk = 0};
  step.ranks[1].actions.push_back(
      {.action = {.kind = ActionKind::kTransfer, .peer = 0, .send = message}, .time = {5, 90 * kMs}});
  step.ranks[0].operations.push_back({.kind = comm::OperationKind::kSend, .bytes = 8, .time = {5, 6}});
  std::ofstream(dir.path() / "t") << text_of_file(step);
  const StepTrace back = trace::read_step_trace(dir.path() / "t");
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.unix_time, 1.5e9);
  EXPECT_EQ(back.mesh, step.mesh);
  EXPECT_EQ(back.schedule, step.schedule);
  ASSERT_THAT(back.ranks, SizeIs(2));
  EXPECT_EQ(back.ranks[0].host, step.ranks[0].host);
  EXPECT_EQ(back.ranks[1].clock_offset, -7);
  EXPECT_EQ(back.ranks[1].clock_uncertainty, 9);
  EXPECT_EQ(back.ranks[1].dropped, 2);
  ASSERT_THAT(back.ranks[1].actions, SizeIs(5));
  EXPECT_EQ(back.ranks[1].actions[0].time, (Interval{-5, 20 * kMs - 5}));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(back.ranks[1].actions[i].action, step.ranks[1].actions[i].action) << i;
  EXPECT_THAT(back.ranks[0].operations, SizeIs(3));
  EXPECT_THAT(back.ranks[0].calls, SizeIs(2));
  EXPECT_EQ(back.ranks[0].calls[1].kind, comm::OperationKind::kRecv);
  EXPECT_EQ(back.ranks[0].calls[1].bytes, 64);
}

TEST(TraceFile, DamageIsNamed) {
  const ScratchDir dir;
  const std::string good = text_of_file(two_stages(10));
  const auto expect_damaged = [&](const std::string& text, const std::string& why) {
    std::ofstream(dir.path() / "bad.json") << text;
    try {
      trace::read_step_trace(dir.path() / "bad.json");
      ADD_FAILURE() << "read: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData) << why;
      EXPECT_THAT(error.what(), AllOf(HasSubstr("bad.json"), HasSubstr("log.trace_steps"))) << why;
    }
  };
  expect_damaged("", "empty");
  expect_damaged(good.substr(0, good.size() / 2), "cut");
  std::string flipped = good;
  flipped.at(good.find("9999995")) = '3';
  expect_damaged(flipped, "a digit changed");
  expect_damaged("{\"format\":\"other\"}\n{}", "another format");
  StepTrace other = two_stages(10);
  other.ranks[0].actions.push_back({.action = {.kind = ActionKind::kTransfer, .peer = 2}, .time = {5, 6}});
  expect_damaged(text_of_file(other), "a peer behind the last stage");
  std::string newer = good;
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":9");
  std::ofstream(dir.path() / "newer.json") << newer;
  try {
    trace::read_step_trace(dir.path() / "newer.json");
    ADD_FAILURE() << "read a newer version";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("got 9"));
  }
}

/// Checks a Chrome trace by its format's rules, and returns its events.
std::vector<json> checked_events(const std::string& text) {
  const json whole = json::parse(text);
  std::vector<json> events = whole.at("traceEvents");
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> threads;
  std::map<int64_t, std::string> arrows;
  for (const json& e : events) {
    const std::string phase = e.at("ph");
    if (phase == "X") {
      EXPECT_GE(e.at("ts").get<double>(), 0);
      EXPECT_GE(e.at("dur").get<double>(), 0);
      threads[{e.at("pid"), e.at("tid")}].emplace_back(e.at("ts"),
                                                       e.at("ts").get<double>() + e.at("dur").get<double>());
    } else if (phase == "s" || phase == "f") {
      arrows[e.at("id")] += phase;
    } else {
      EXPECT_EQ(phase, "M");
    }
  }
  for (const auto& [id, ends] : arrows) EXPECT_EQ(ends, "sf") << id;
  for (auto& [thread, slices] : threads) {  // slices of a thread lie within each other or apart
    std::ranges::sort(slices, [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;
    for (const auto& [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin + 1e-6) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + 1e-6) << "on thread " << thread.second << " at " << begin;
      }
      open.push_back(end);
    }
  }
  return events;
}

int64_t number_of(const std::vector<json>& events, int64_t rank, const std::string& category, const std::string& name) {
  return std::ranges::count_if(events, [&](const json& e) {
    return e.at("pid") == 1000 * (rank + 1) && e.value("cat", "") == category &&
           e.at("name").get<std::string>().starts_with(name);
  });
}

TEST(ChromeTrace, HasAProcessForEachRankAndArrowsBetweenStages) {
  StepTrace step = two_stages(10);
  step.ranks[0].operations.push_back({.kind = comm::OperationKind::kSend, .time = {25 * kMs, 45 * kMs}});
  const std::vector<json> events = checked_events(trace::chrome_trace(step, "run"));
  EXPECT_EQ(number_of(events, 0, "action", "forward"), 2);
  EXPECT_EQ(number_of(events, 1, "action", "backward"), 2);
  EXPECT_EQ(number_of(events, 0, "call", "recv on pipeline"), 2);
  std::vector<std::string> names;
  for (const json& e : events)
    if (e.at("name") == "process_name") names.push_back(e.at("args").at("name"));
  EXPECT_THAT(names, ElementsAre("rank 0: pipeline 0", "rank 1: pipeline 1"));
  std::vector<json> activation;
  for (const json& e : events)
    if (e.at("name") == "activation") activation.push_back(e);
  ASSERT_THAT(activation, SizeIs(4));
  EXPECT_EQ(activation[0].at("pid"), 1000);
  EXPECT_NEAR(activation[0].at("ts"), 10e3, 0.01) << "the end of F0 on stage 0";
  EXPECT_EQ(activation[1].at("pid"), 2000);
  EXPECT_NEAR(activation[1].at("ts"), 10e3, 0.01) << "stage 1 has what it waited for";
  std::vector<json> gradient;
  for (const json& e : events)
    if (e.at("name") == "gradient") gradient.push_back(e);
  ASSERT_THAT(gradient, SizeIs(4));
  EXPECT_EQ(gradient[0].at("pid"), 2000);
  EXPECT_NEAR(gradient[0].at("ts"), 40e3, 0.01) << "the end of B0 on stage 1";
  EXPECT_EQ(gradient[1].at("pid"), 1000);
}

class TracedRuns : public ::testing::Test {
 protected:
  static constexpr const char* kTrain =
      "launch -np 2 train tiny.toml mesh.pipeline=2 train.global_batch=8 train.steps=6 checkpoint.every=2 "
      "checkpoint.keep=5 train.eval_every=4 ";
  const RunFixture run_;

  void expect_error(const std::string& words, int code, const std::string& text) {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, code) << words;
    EXPECT_THAT(r.err, HasSubstr(text));
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
  }
};

TEST_F(TracedRuns, ShowWhatEachRankDidAndChangeNoBit) {
  ASSERT_EQ(run_.ashlar(std::string(kTrain) + "run.dir=plain").code, 0);
  const ShellResult traced = run_.ashlar(std::string(kTrain) + "log.trace_steps=[3] log.trace_every=4");
  ASSERT_EQ(traced.code, 0) << traced.err;
  EXPECT_EQ(run_.exact_metrics("run"), run_.exact_metrics("plain"));
  EXPECT_THAT(run_.read("run/train.log"), HasSubstr("traced step 3: ashlar trace 'run' --step 3"));
  EXPECT_THAT(trace::traced_steps(run_.dir() / "run"), ElementsAre(3, 4));
  EXPECT_FALSE(fs::exists(run_.dir() / "plain/trace"));

  const ShellResult shown = run_.ashlar("trace run --step 3 -o three.json");
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("bubble: "), HasSubstr("planned 20.0% with equal chunks"),
                               HasSubstr("slowest: rank "), HasSubstr("hidden"), HasSubstr("wrote 'three.json'")));
  const std::vector<json> events = checked_events(run_.read("three.json"));
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(number_of(events, rank, "action", "forward "), 4);
    EXPECT_EQ(number_of(events, rank, "action", "backward "), 4);
    for (const char* part : {"forward and backward", "gradient sums", "next batch", "optimizer"})
      EXPECT_EQ(number_of(events, rank, "step", part), 1) << part;
    EXPECT_EQ(number_of(events, rank, "step", "validation"), 0);
  }
  const ShellResult last = run_.ashlar("trace run --json");
  ASSERT_EQ(last.code, 0) << last.err;
  const json summary = json::parse(last.out);
  EXPECT_EQ(summary.at("step"), 4);
  EXPECT_EQ(summary.at("traced_steps"), json({3, 4}));
  EXPECT_GT(summary.at("bubble").get<double>(), 0);
  EXPECT_LT(summary.at("bubble").get<double>(), 1);
  EXPECT_GT(summary.at("part_ms").at("validation").get<double>(), 0);
  EXPECT_GT(summary.at("part_ms").at("save").get<double>(), 0);
  EXPECT_EQ(number_of(checked_events(run_.read("trace-4.json")), 0, "step", "validation"), 1);
}

TEST_F(TracedRuns, ThatResumeReplaceTheStepsTheyRepeat) {
  const std::string train = std::string(kTrain) + "log.trace_steps=[2,5,6]";
  ASSERT_EQ(run_.ashlar(train).code, 0);
  const std::string second = run_.read("run/trace/step-00000002.json"),
                    fifth = run_.read("run/trace/step-00000005.json");
  fs::remove_all(run_.dir() / "run/checkpoints/step-00000006");
  ASSERT_EQ(run_.ashlar(train).code, 0);
  EXPECT_THAT(trace::traced_steps(run_.dir() / "run"), ElementsAre(2, 5, 6));
  EXPECT_EQ(run_.read("run/trace/step-00000002.json"), second) << "was not repeated";
  EXPECT_NE(run_.read("run/trace/step-00000005.json"), fifth);
}

TEST_F(TracedRuns, ThatCannotBeShownSaySo) {
  ASSERT_EQ(run_.ashlar("train tiny.toml schedule.warmup_steps=1 train.steps=2 run.dir=plain").code, 0);
  expect_error("trace plain", kInput, "log.trace_steps=[10,20]");
  expect_error("trace nowhere", kInput, "nowhere");
  expect_error("train tiny.toml log.trace_steps=[61]", kInput, "log.trace_steps: expected steps from 1 to train.steps");
  ASSERT_EQ(run_.ashlar("train tiny.toml schedule.warmup_steps=1 train.steps=2 log.trace_every=1").code, 0);
  expect_error("trace run --step 7", kInput, "expected a traced step (1, 2), got --step 7");
  const std::string text = run_.read("run/trace/step-00000002.json");
  run_.write("run/trace/step-00000002.json", text.substr(0, text.size() - 9));
  expect_error("trace run", kDamaged, "step-00000002.json");
  EXPECT_FALSE(fs::exists(run_.dir() / "trace-2.json"));
  EXPECT_EQ(run_.ashlar("trace run --step 1").code, 0);
}

TEST_F(TracedRuns, GoOnIfTheFileCannotBeWritten) {
  ASSERT_EQ(run_.ashlar("train tiny.toml schedule.warmup_steps=1 train.steps=2").code, 0);
  run_.write("run/trace", "in the way\n");
  const ShellResult r = run_.ashlar("train tiny.toml schedule.warmup_steps=1 train.steps=4 log.trace_steps=[3]");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out + r.err, HasSubstr("step 3 is not traced"));
  EXPECT_THAT(run_.metric("run", "loss"), SizeIs(4));
}

}  // namespace
}  // namespace ashlar::testing
