#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"
#include "tests/parallel/render_schedule.h"

namespace ashlar::pipeline {
namespace {

using enum PipelineSchedule;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Action forward(int64_t m) { return {.kind = ActionKind::kForward, .micro_batch = m}; }
Action backward(int64_t m) { return {.kind = ActionKind::kBackward, .micro_batch = m}; }
Action send(Payload payload, int64_t m, int64_t peer) {
  return {.kind = ActionKind::kTransfer, .peer = peer, .send = Message{payload, m, 0}};
}
Action receive(Payload payload, int64_t m, int64_t peer) {
  return {.kind = ActionKind::kTransfer, .peer = peer, .receive = Message{payload, m, 0}};
}

std::string bug_of(const ScheduleSpec& spec, const std::vector<ActionList>& lists) {
  try {
    simulate(spec, lists, Costs::uniform(spec, 1, 1, 1));
  } catch (const Bug& bug) {
    return bug.what();
  }
  return "no error";
}

TEST(PipelineSimulate, TimesOfAHandMadeRun) {
  const ScheduleSpec spec{.kind = kGpipe, .stages = 2, .micro_batches = 1};
  const Costs costs{.forward = {1, 2}, .backward_input = {4, 8}, .backward_weight = {16, 32}, .latency = 64};
  const Simulation run = simulate(spec, make_schedules(spec), costs);
  EXPECT_EQ(run.time, 1 + 64 + 2 + 40 + 64 + 20);
  EXPECT_EQ(run.stages[0].busy, 21);
  EXPECT_EQ(run.stages[1].busy, 42);
  EXPECT_EQ(run.stages[0].idle, run.time - 21);
  EXPECT_DOUBLE_EQ(run.bubble_fraction, 1 - 63 / (2 * run.time));
  ASSERT_EQ(run.stages[1].spans.size(), 4u);
  EXPECT_EQ(run.stages[1].spans[0].start, 1);
  EXPECT_EQ(run.stages[1].spans[0].end, 65);
  EXPECT_EQ(run.stages[1].spans[2].end, 107);
}

TEST(PipelineSimulate, ATransferHoldsTheSenderUntilItIsReceived) {
  // Stage 1 needs 10 for each forward: stage 0 cannot run ahead of it by more than the one it is sending.
  const ScheduleSpec spec{.kind = kForwardOnly, .stages = 2, .micro_batches = 3};
  const Costs costs{.forward = {1, 10}, .backward_input = {0, 0}, .backward_weight = {0, 0}};
  const Simulation run = simulate(spec, make_schedules(spec), costs);
  EXPECT_EQ(run.time, 31);
  EXPECT_EQ(run.stages[0].spans.back().end, 21);
}

TEST(PipelineSimulate, WithinAStageNothingTravels) {
  const ScheduleSpec spec{.kind = kInterleaved, .stages = 1, .micro_batches = 3, .virtual_stages = 2};
  Costs costs = Costs::uniform(spec, 1, 1, 1);
  costs.latency = 100;
  EXPECT_EQ(simulate(spec, make_schedules(spec), costs).time, 18);
}

TEST(PipelineSimulate, PairsOfARingMeetInParallel) {
  // A forward through all stages costs its own latencies only, not those of the meetings of other pairs.
  const ScheduleSpec spec{.kind = kForwardOnly, .stages = 8, .micro_batches = 1};
  Costs costs = Costs::uniform(spec, 1, 1, 1);
  costs.latency = 1;
  EXPECT_EQ(simulate(spec, make_schedules(spec), costs).time, 15);
  // With many micro-batches each slot costs a stage one meeting on either side, whatever the number of stages.
  for (const int64_t stages : {4, 5, 8}) {
    const ScheduleSpec many{.kind = kForwardOnly, .stages = stages, .micro_batches = 40};
    costs = Costs::uniform(many, 1, 1, 1);
    costs.latency = 1;
    EXPECT_LE(simulate(many, make_schedules(many), costs).time, 3 * (40 + stages - 1)) << stages;
  }
}

TEST(PipelineSimulate, UnequalCostsStayWithinTheirBounds) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(0.1, 2);
  for (int trial = 0; trial < 200; ++trial) {
    ScheduleSpec spec{.kind = std::vector{kGpipe, k1F1B, kInterleaved, kZbH1}[static_cast<size_t>(trial % 4)],
                      .stages = 1 + trial % 5,
                      .micro_batches = 1 + trial % 7};
    if (spec.kind == kInterleaved) spec.virtual_stages = 3;
    Costs costs = Costs::uniform(spec, 0, 0, 0);
    for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
      for (double& cost : *list) cost = draw(random);
    }
    const Simulation run = simulate(spec, make_schedules(spec), costs);
    double chain = 0, total = 0;  // of one micro-batch: all forwards and input gradients; of all work
    for (size_t k = 0; k < costs.forward.size(); ++k) {
      chain += costs.forward[k] + costs.backward_input[k];
      total += costs.forward[k] + costs.backward_input[k] + costs.backward_weight[k];
    }
    total *= static_cast<double>(spec.micro_batches);
    EXPECT_GE(run.time, chain);
    EXPECT_LE(run.time, total * (1 + 1e-12));
    double busy = 0;
    for (const StageRun& stage : run.stages) {
      EXPECT_GE(stage.idle, -1e-12);
      busy += stage.busy;
      double clock = 0;
      for (const Span& span : stage.spans) {
        EXPECT_GE(span.start, clock);
        EXPECT_GE(span.end, span.start);
        clock = span.end;
      }
    }
    EXPECT_NEAR(busy, total, 1e-9);
  }
}

TEST(PipelineSimulate, DeadlockNamesWhatEveryStageWaitsAt) {
  const ScheduleSpec spec{.kind = kGpipe, .stages = 3, .micro_batches = 2};
  const std::vector<ActionList> lists = {
      {forward(0), send(Payload::kActivation, 0, 1), forward(1), receive(Payload::kGradient, 0, 1)},
      {receive(Payload::kActivation, 0, 0), forward(0), send(Payload::kActivation, 0, 2),
       receive(Payload::kGradient, 0, 2)},
      {receive(Payload::kActivation, 0, 1), forward(0), receive(Payload::kActivation, 1, 1)}};
  const std::string text = bug_of(spec, lists);
  EXPECT_THAT(text, HasSubstr("nothing is sent"));  // stages 0 and 1: two receives that face each other

  std::vector<ActionList> waiting = lists;
  waiting[1].back() = receive(Payload::kGradient, 0, 0);
  waiting[0].pop_back();
  EXPECT_EQ(
      bug_of(spec, waiting),
      "[pipeline] gpipe schedule: no stage can continue; stage 0 is done; stage 1 at action 3 (receive gradient of "
      "micro-batch 0 for chunk 0 from stage 0); stage 2 at action 2 (receive activation of micro-batch 1 for chunk "
      "0 from stage 1)");
}

TEST(PipelineSimulate, SeparateOppositeSendsDeadlockAndOneTransferDoesNot) {
  const ScheduleSpec spec{.kind = k1F1B, .stages = 2, .micro_batches = 2};
  std::vector<ActionList> lists = make_schedules(spec);
  EXPECT_EQ(bug_of(spec, lists), "no error");
  for (int64_t stage = 0; stage < 2; ++stage) {  // split every exchange into its send and then its receive
    ActionList split;
    for (const Action& action : lists[static_cast<size_t>(stage)]) {
      Action first = action, second = action;
      first.receive.reset();
      second.send.reset();
      const bool both = action.send && action.receive;
      if (both) split.push_back(first);
      split.push_back(both ? second : action);
    }
    lists[static_cast<size_t>(stage)] = split;
  }
  EXPECT_THAT(bug_of(spec, lists), HasSubstr("nothing receives it"));
}

TEST(PipelineSimulate, NamesWhatIsWrong) {
  const ScheduleSpec spec{.kind = k1F1B, .stages = 1, .micro_batches = 2};
  const auto bug = [&](const ActionList& list) { return bug_of(spec, {list}); };
  EXPECT_EQ(bug({forward(0), backward(0), forward(1), backward(1)}), "no error");
  EXPECT_EQ(bug({forward(0), backward(0), backward(1)}),
            "[pipeline] 1f1b of 1 stages, 2 micro-batches, 1 virtual stages: stage 0 at action 2 (backward of "
            "micro-batch 1 on chunk 0): its forward has not run");
  EXPECT_THAT(bug({forward(0), forward(1), backward(1)}), HasSubstr("expected micro-batch 0"));
  EXPECT_THAT(bug({forward(0), forward(0)}), HasSubstr("it has already run"));
  EXPECT_THAT(bug({forward(2)}), HasSubstr("no such micro-batch"));
  EXPECT_THAT(bug({{.kind = ActionKind::kForward, .chunk = 1}}), HasSubstr("no such chunk"));
  EXPECT_THAT(bug({forward(0), backward(0)}), HasSubstr("forward of micro-batch 1 on chunk 0 is missing"));
  EXPECT_THAT(bug({forward(0), backward(0), forward(1)}), HasSubstr("backward of micro-batch 1 on chunk 0 is missing"));
  EXPECT_THAT(bug({forward(0), {.kind = ActionKind::kBackwardWeight}}), HasSubstr("input backward has not run"));
  EXPECT_THAT(bug({forward(0), forward(1), backward(0), {.kind = ActionKind::kBackwardInput, .micro_batch = 1}}),
              HasSubstr("weight backward of micro-batch 1 on chunk 0 is missing"));
  EXPECT_THAT(bug({{.kind = ActionKind::kTransfer, .peer = 1, .send = Message{}}}), HasSubstr("no such stage"));
  EXPECT_THAT(bug({{.kind = ActionKind::kTransfer}}), HasSubstr("empty transfer): it transfers nothing"));
  EXPECT_THAT(bug_of({.kind = kForwardOnly}, {{forward(0), backward(0)}}), HasSubstr("no backward in forward_only"));
}

TEST(PipelineSimulate, NamesWhatIsSentWrongly) {
  const ScheduleSpec spec{.kind = kForwardOnly, .stages = 2, .micro_batches = 2};
  const auto act = Payload::kActivation;
  EXPECT_THAT(bug_of(spec, {{send(act, 0, 1)}, {receive(act, 0, 0)}}), HasSubstr("it has not been computed"));
  EXPECT_THAT(bug_of(spec, {{}, {forward(0)}}), HasSubstr("its input has not arrived"));
  EXPECT_EQ(
      bug_of(spec, {{forward(0), send(act, 0, 1)}, {receive(act, 1, 0)}}),
      "[pipeline] forward_only of 2 stages, 2 micro-batches, 1 virtual stages: stage 0 at action 1 (send activation "
      "of micro-batch 0 from chunk 0 to stage 1): the peer expects another tensor at stage 1 at action 0 (receive "
      "activation of micro-batch 1 for chunk 0 from stage 0)");
  EXPECT_THAT(bug_of(spec, {{forward(0), send(act, 0, 1), send(act, 0, 1)}, {receive(act, 0, 0), receive(act, 0, 0)}}),
              HasSubstr("it was already sent"));
}

TEST(PipelineSimulate, ChecksItsArguments) {
  const ScheduleSpec spec{.kind = kGpipe, .stages = 2, .micro_batches = 1};
  EXPECT_THROW(simulate(spec, {{}}, Costs::uniform(spec, 1, 1, 1)), Bug);
  EXPECT_THROW(simulate(spec, make_schedules(spec), Costs::uniform(spec, -1, 1, 1)), Bug);
  EXPECT_THROW(simulate(spec, make_schedules(spec), Costs{}), Bug);
}

TEST(PipelineRender, OneRowAStage) {
  const ScheduleSpec spec{.kind = k1F1B, .stages = 2, .micro_batches = 3};
  const std::vector<ActionList> lists = make_schedules(spec);
  const Simulation run = simulate(spec, lists, Costs::uniform(spec, 1, 1, 1));
  EXPECT_EQ(render(spec, lists, run),
            "time 12, bubble 25.0%; F forward, B backward, I and W its input and weight parts, ~ transfer, number: "
            "micro-batch\n"
            "stage 0 |F0F1....B0--F2B1--..B2--| idle 25%\n"
            "stage 1 |..F0B0--F1B1--F2B2--....| idle 25%\n");
  EXPECT_THAT(render(spec, lists, run, 12), HasSubstr("stage 0 |FF..B0FB1.B2| idle 25%\n"));
}

TEST(PipelineRender, ShowsChunksTransfersAndParts) {
  const ScheduleSpec chunks{.kind = kForwardOnly, .stages = 1, .micro_batches = 1, .virtual_stages = 2};
  const std::vector<ActionList> one = make_schedules(chunks);
  const Simulation run = simulate(chunks, one, Costs::uniform(chunks, 1, 1, 1));
  EXPECT_THAT(render(chunks, one, run), HasSubstr("micro-batch.chunk\nstage 0 |F0.0F0.1| idle 0%\n"));
  EXPECT_THAT(render(chunks, one, run, 4), HasSubstr("stage 0 |F-F-| idle 0%\n"));
  const ScheduleSpec zero{.kind = kZbH1, .stages = 2, .micro_batches = 1};
  Costs costs = Costs::uniform(zero, 1, 1, 1);
  costs.latency = 1;
  EXPECT_THAT(render(zero, make_schedules(zero), simulate(zero, make_schedules(zero), costs)),
              HasSubstr("stage 0 |F0~~....~~I0W0| idle 57%\n"
                        "stage 1 |..~~F0I0~~W0..| idle 57%\n"));
}

}  // namespace
}  // namespace ashlar::pipeline
