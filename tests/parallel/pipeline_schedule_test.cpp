#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"

namespace ashlar::pipeline {
namespace {

using enum PipelineSchedule;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The compute actions of a list, as "F0 B0 I1 W1"; of one chunk of several as "F0.1".
std::string compute_of(const ScheduleSpec& spec, const ActionList& list) {
  std::string text;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kTransfer) continue;
    if (!text.empty()) text += " ";
    text += std::map<ActionKind, std::string>{{ActionKind::kForward, "F"},
                                              {ActionKind::kBackward, "B"},
                                              {ActionKind::kBackwardInput, "I"},
                                              {ActionKind::kBackwardWeight, "W"}}[action.kind];
    text += str_cat(action.micro_batch);
    if (spec.virtual_stages > 1) text += str_cat(".", action.chunk);
  }
  return text;
}

std::string compute_of(const ScheduleSpec& spec, int64_t stage) { return compute_of(spec, make_schedule(spec, stage)); }

std::vector<std::string> describe_all(const ActionList& list) {
  std::vector<std::string> texts;
  for (const Action& action : list) texts.push_back(describe(action));
  return texts;
}

TEST(PipelineSchedule, OneForwardOneBackwardInFull) {
  const ScheduleSpec spec{.kind = k1F1B, .stages = 2, .micro_batches = 2};
  EXPECT_THAT(describe_all(make_schedule(spec, 0)),
              ElementsAre("forward of micro-batch 0 on chunk 0",                       //
                          "send activation of micro-batch 0 from chunk 0 to stage 1",  //
                          "forward of micro-batch 1 on chunk 0",                       //
                          "send activation of micro-batch 1 from chunk 0 to stage 1 and "
                          "receive gradient of micro-batch 0 for chunk 0 from stage 1",  //
                          "backward of micro-batch 0 on chunk 0",                        //
                          "receive gradient of micro-batch 1 for chunk 0 from stage 1",  //
                          "backward of micro-batch 1 on chunk 0"));
  EXPECT_THAT(describe_all(make_schedule(spec, 1)),
              ElementsAre("receive activation of micro-batch 0 for chunk 0 from stage 0",  //
                          "forward of micro-batch 0 on chunk 0",                           //
                          "backward of micro-batch 0 on chunk 0",                          //
                          "send gradient of micro-batch 0 from chunk 0 to stage 0 and "
                          "receive activation of micro-batch 1 for chunk 0 from stage 0",  //
                          "forward of micro-batch 1 on chunk 0",                           //
                          "backward of micro-batch 1 on chunk 0",                          //
                          "send gradient of micro-batch 1 from chunk 0 to stage 0"));
}

// Figures of the papers, written out by hand (the papers count from 1).
TEST(PipelineSchedule, OrdersOfThePapers) {
  const ScheduleSpec gpipe{.kind = kGpipe, .stages = 4, .micro_batches = 3};
  for (int64_t stage = 0; stage < 4; ++stage) EXPECT_EQ(compute_of(gpipe, stage), "F0 F1 F2 B0 B1 B2");
  // arXiv:2104.04473, figure 4 top.
  const ScheduleSpec one{.kind = k1F1B, .stages = 4, .micro_batches = 8};
  EXPECT_EQ(compute_of(one, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(compute_of(one, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  // Figure 4 bottom: four micro-batches through the first chunk, the same four through the second, the next four.
  const ScheduleSpec interleaved{.kind = kInterleaved, .stages = 4, .micro_batches = 8, .virtual_stages = 2};
  EXPECT_EQ(compute_of(interleaved, 0),
            "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 F7.1 "
            "B1.0 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  EXPECT_EQ(compute_of(interleaved, 3),
            "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4.0 B0.0 F5.0 B1.0 F6.0 B2.0 F7.0 B3.0 F4.1 "
            "B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  // arXiv:2401.10241, figure 2 top.
  const ScheduleSpec zero{.kind = kZbH1, .stages = 4, .micro_batches = 8};
  EXPECT_EQ(compute_of(zero, 0), "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
  EXPECT_EQ(compute_of(zero, 3), "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
}

TEST(PipelineSchedule, OneStageIsNoSpecialCase) {
  EXPECT_EQ(compute_of({.kind = k1F1B, .micro_batches = 2}, 0), "F0 B0 F1 B1");
  EXPECT_EQ(compute_of({.kind = kZbH1, .micro_batches = 2}, 0), "F0 I0 W0 F1 I1 W1");
  EXPECT_EQ(compute_of({.kind = kForwardOnly, .micro_batches = 2}, 0), "F0 F1");
  // Chunks of one stage hand over to each other by a transfer to itself.
  const ScheduleSpec both{.kind = kInterleaved, .micro_batches = 1, .virtual_stages = 2};
  EXPECT_THAT(
      describe_all(make_schedule(both, 0)),
      ElementsAre("forward of micro-batch 0 on chunk 0",
                  "send activation of micro-batch 0 from chunk 0 to stage 0 and receive activation of "
                  "micro-batch 0 for chunk 1 from stage 0",
                  "forward of micro-batch 0 on chunk 1", "backward of micro-batch 0 on chunk 1",
                  "send gradient of micro-batch 0 from chunk 1 to stage 0 and receive gradient of micro-batch 0 "
                  "for chunk 0 from stage 0",
                  "backward of micro-batch 0 on chunk 0"));
}

TEST(PipelineSchedule, InterleavedWithOneChunkIs1F1B) {
  for (int64_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(make_schedule({.kind = kInterleaved, .stages = 3, .micro_batches = 5}, stage),
              make_schedule({.kind = k1F1B, .stages = 3, .micro_batches = 5}, stage));
  }
}

TEST(PipelineSchedule, GroupsOfInterleavedAreAsEqualAsCanBe) {
  const ScheduleSpec spec{.kind = kForwardOnly, .stages = 2, .micro_batches = 5, .virtual_stages = 2};
  EXPECT_EQ(compute_of(spec, 0), "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 F3.0 F4.0 F3.1 F4.1");
}

TEST(PipelineSchedule, RefusesWhatIsNoSchedule) {
  const auto error_of = [](const ScheduleSpec& spec) -> std::string {
    try {
      make_schedules(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "no error";
  };
  for (const PipelineSchedule kind : {kGpipe, k1F1B, kZbH1}) {
    const std::string text = error_of({.kind = kind, .stages = 2, .micro_batches = 2, .virtual_stages = 2});
    EXPECT_EQ(text, str_cat("[pipeline] expected mesh.virtual_stages = 1 with mesh.schedule = \"", name_of(kind),
                            "\", got 2; set mesh.virtual_stages = 1 or mesh.schedule = \"interleaved\""));
  }
  EXPECT_THAT(error_of({.stages = 0}), HasSubstr("got 0, 1 and 1"));
  EXPECT_THAT(error_of({.micro_batches = 0}), HasSubstr("got 1, 0 and 1"));
  EXPECT_THAT(error_of({.virtual_stages = -1}), HasSubstr("got 1, 1 and -1"));
  EXPECT_THROW(make_schedule({.stages = 2}, 2), Bug);
  EXPECT_THROW(make_schedule({.stages = 2}, -1), Bug);
}

/// Calls visit(spec) for every kind and size of the grid.
void for_grid(const std::function<void(const ScheduleSpec&)>& visit) {
  for (const PipelineSchedule kind : {kForwardOnly, kGpipe, k1F1B, kInterleaved, kZbH1}) {
    const bool chunks = kind == kForwardOnly || kind == kInterleaved;
    for (int64_t stages = 1; stages <= 8; ++stages) {
      for (int64_t micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        for (int64_t virtual_stages = 1; virtual_stages <= (chunks ? 4 : 1); ++virtual_stages) {
          visit({.kind = kind, .stages = stages, .micro_batches = micro_batches, .virtual_stages = virtual_stages});
        }
      }
    }
  }
}

struct Theory {
  double time;
  std::vector<int64_t> live, queued, held;  // [stages]
};

/// The formulas of the papers, for stages of cost tf, ti, tw.
Theory theory_of(const ScheduleSpec& spec, double tf, double ti, double tw) {
  const int64_t P = spec.stages, M = spec.micro_batches, V = spec.virtual_stages;
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  Theory theory{};
  // Bubble of arXiv:2104.04473, 2.2: (P - 1)(tf + tb) / V. With M < P the group leaves each of its V rounds P - M
  // short.
  const double slots = count(M * V + P - 1 + (V - 1) * std::max<int64_t>(0, P - M));
  switch (spec.kind) {
    case kForwardOnly: theory.time = slots * tf / count(V); break;
    case kGpipe:
    case k1F1B:
    case kInterleaved: theory.time = slots * (tf + ti + tw) / count(V); break;
    // arXiv:2401.10241, table 2: bubble (P - 1)(tf + ti - tw); with M < P there is weight work for M - 1 slots only.
    case kZbH1: theory.time = count(M) * (tf + ti + tw) + count(P - 1) * (tf + ti) - count(std::min(M, P) - 1) * tw;
  }
  for (int64_t p = 0; p < P; ++p) {
    int64_t live = 0, queued = 0, held = 0;
    switch (spec.kind) {
      case kForwardOnly: break;
      case kGpipe: live = M; break;
      case k1F1B: live = std::min(P - p, M); break;
      case kInterleaved: {
        // Megatron-LM: 2 (P - p - 1) + (V - 1) P warm-up forwards for M % P == 0, one more in the steady state.
        const int64_t groups = std::max<int64_t>(1, M / P), largest = M / groups + (M % groups != 0);
        live = V == 1 ? std::min(P - p, M) : std::min(2 * (P - p - 1) + (V - 1) * largest + 1, M * V);
        break;
      }
      case kZbH1:
        live = std::min(P - p, M);
        queued = std::min(p + 1, M);
        held = std::min(P, M);
        break;
    }
    theory.live.push_back(live);
    theory.queued.push_back(queued);
    theory.held.push_back(spec.kind == kZbH1 ? held : live);
  }
  return theory;
}

TEST(PipelineSchedule, EveryScheduleOfTheGridKeepsItsTheory) {
  struct Time {
    double tf, ti, tw;
  };
  int64_t schedules = 0;
  for_grid([&](const ScheduleSpec& spec) {
    if (::testing::Test::HasFatalFailure()) return;
    SCOPED_TRACE(
        str_cat(name_of(spec.kind), " P ", spec.stages, " M ", spec.micro_batches, " V ", spec.virtual_stages));
    const std::vector<ActionList> lists = make_schedules(spec);
    const int64_t one = schedules++ % spec.stages;
    ASSERT_EQ(make_schedule(spec, one), lists[static_cast<size_t>(one)]);
    // Equal parts; a backward as long as a forward; recomputation; weights cheaper than either.
    for (const Time& time : {Time{1, 1, 1}, Time{1, 0.5, 0.5}, Time{1, 2, 1}, Time{2, 1.5, 1.25}}) {
      const auto V = static_cast<double>(spec.virtual_stages);
      const Simulation run = simulate(spec, lists, Costs::uniform(spec, time.tf / V, time.ti / V, time.tw / V));
      const Theory theory = theory_of(spec, time.tf, time.ti, time.tw);
      const bool trains = spec.kind != kForwardOnly;
      const double work = static_cast<double>(spec.micro_batches) * (time.tf + (trains ? time.ti + time.tw : 0));
      // Bound: each of the additions on a path of at most time / (smallest cost) actions rounds once.
      ASSERT_NEAR(run.time, theory.time, 1e-9);
      ASSERT_NEAR(run.bubble_fraction, 1 - work / theory.time, 1e-9);
      for (size_t p = 0; p < run.stages.size(); ++p) {
        ASSERT_EQ(run.stages[p].live, theory.live[p]) << "stage " << p;
        ASSERT_EQ(run.stages[p].queued, theory.queued[p]) << "stage " << p;
        ASSERT_EQ(run.stages[p].held, theory.held[p]) << "stage " << p;
        ASSERT_NEAR(run.stages[p].busy, work, 1e-9);
        ASSERT_NEAR(run.stages[p].idle, theory.time - work, 1e-9);
      }
    }
  });
  EXPECT_EQ(schedules, 8 * 32 * (4 + 1 + 1 + 4 + 1));
}

TEST(PipelineSchedule, ZeroBubbleIsAThirdOf1F1B) {
  for (int64_t P = 2; P <= 8; ++P) {
    for (int64_t M = P; M <= 32; ++M) {
      const auto bubble = [&](PipelineSchedule kind) {
        const ScheduleSpec spec{.kind = kind, .stages = P, .micro_batches = M};
        return simulate(spec, make_schedules(spec), Costs::uniform(spec, 1, 1, 1)).stages[0].idle;
      };
      EXPECT_DOUBLE_EQ(3 * bubble(kZbH1), bubble(k1F1B)) << P << " " << M;
    }
  }
}

TEST(PipelineSchedule, BackwardsOfAChunkAscend) {
  for_grid([&](const ScheduleSpec& spec) {
    for (const ActionList& list : make_schedules(spec)) {
      std::map<std::pair<ActionKind, int64_t>, int64_t> next;
      for (const Action& action : list) {
        if (action.kind == ActionKind::kTransfer || action.kind == ActionKind::kForward) continue;
        ASSERT_EQ(action.micro_batch, (next[{action.kind, action.chunk}]++))
            << name_of(spec.kind) << " " << spec.stages << " " << spec.micro_batches << " " << spec.virtual_stages;
      }
    }
  });
}

/// The transfers of a list with one peer, each with the number of compute actions before it.
std::vector<std::pair<int64_t, Action>> transfers_with(const ActionList& list, int64_t peer) {
  std::vector<std::pair<int64_t, Action>> transfers;
  int64_t computed = 0;
  for (const Action& action : list) {
    if (action.kind != ActionKind::kTransfer) {
      ++computed;
    } else if (action.peer == peer) {
      transfers.emplace_back(computed, action);
    }
  }
  return transfers;
}

TEST(PipelineSchedule, OppositeSendsAtOnePointAreOneTransfer) {
  int64_t exchanges = 0;
  for_grid([&](const ScheduleSpec& spec) {
    const std::vector<ActionList> lists = make_schedules(spec);
    for (int64_t stage = 0; stage < spec.stages; ++stage) {
      for (int64_t peer = stage + 1; peer < spec.stages; ++peer) {
        const auto own = transfers_with(lists[static_cast<size_t>(stage)], peer);
        const auto theirs = transfers_with(lists[static_cast<size_t>(peer)], stage);
        ASSERT_EQ(own.size(), theirs.size());
        for (size_t i = 0; i < own.size(); ++i) {
          const auto& [computed, action] = own[i];
          exchanges += action.send && action.receive;
          if (i == 0 || own[i - 1].first != computed || theirs[i - 1].first != theirs[i].first) continue;
          const Action& before = own[i - 1].second;
          const bool opposite = (!action.send && !before.receive) || (!action.receive && !before.send);
          ASSERT_FALSE(opposite) << name_of(spec.kind) << " " << spec.stages << " " << spec.micro_batches << " "
                                 << spec.virtual_stages << ": " << describe(before) << ", " << describe(action);
        }
      }
    }
  });
  EXPECT_GT(exchanges, 100000);
}

TEST(PipelineSchedule, SizesOfLargeRunsAreServed) {
  const ScheduleSpec spec{.kind = kInterleaved, .stages = 16, .micro_batches = 130, .virtual_stages = 6};
  const Simulation run = simulate(spec, make_schedules(spec), Costs::uniform(spec, 1, 1, 1));
  EXPECT_DOUBLE_EQ(run.time, (130 * 6 + 15) * 3);
}

// A step of 32 stages and 1,024 micro-batches costs what it costs to find its list, which is made once a run.
TEST(PipelineSchedule, AStepMakesNoListAgain) {
  constexpr int kSteps = 100;
  using Clock = std::chrono::steady_clock;
  const auto us_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  for (const PipelineSchedule kind : {k1F1B, kInterleaved, kZbH1}) {
    const ScheduleSpec training{
        .kind = kind, .stages = 32, .micro_batches = 1024, .virtual_stages = kind == kInterleaved ? 2 : 1};
    ScheduleSpec validation = training;
    validation.kind = kForwardOnly;
    validation.micro_batches = 32;
    StageSchedules schedules(17);
    auto start = Clock::now();
    const ActionList& first = schedules.of(training);
    const double once = us_since(start);
    EXPECT_EQ(first, make_schedule(training, 17));
    EXPECT_EQ(schedules.of(validation), make_schedule(validation, 17));
    start = Clock::now();
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(&schedules.of(training), &first);
      schedules.of(validation);
    }
    EXPECT_EQ(schedules.made(), 2);
    std::cout << name_of(kind) << ": " << once << " us once, " << us_since(start) / kSteps << " us a step\n";
  }
}

}  // namespace
}  // namespace ashlar::pipeline
