// Whether a run's attention is cuDNN's: when, with which words otherwise, and what is kept.
#include "kernels/cuda/attention/cudnn_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "tests/cudnn/host_planner.h"

namespace ashlar::cudnn::choice_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HostPlanner;
using ::testing::IsEmpty;

constexpr int64_t kB = 2, kT = 64, kH = 2, kD = 8, kRow = 3 * kH * kD, kWorkspace = kB * kH * kT * kT * 4;
constexpr int64_t kSpare = int64_t{256} << 20;  // that a choice leaves

class CudnnChoice : public ::testing::Test {
 protected:
  /// Addresses of a call are numbers; nothing is read.
  AttentionForward forward() {
    auto* const data = memory_.data();
    const ConstView row{data, DType::kBFloat16, kB * kT, kH * kD, kRow};
    return {.q = row,
            .k = row,
            .v = row,
            .out = {data, DType::kBFloat16, kB * kT, kH * kD, kH * kD},
            .lse = {data, DType::kFloat32, 1, kB * kH * kT, kB * kH * kT},
            .shape = {.scores = {.scale = 0.5},
                      .B = kB,
                      .T_q = kT,
                      .T_kv = kT,
                      .H = kH,
                      .G = kH,
                      .D = kD,
                      .q_batch_stride = kT * kRow,
                      .kv_batch_stride = kT * kRow}};
  }
  AttentionBackward backward() {
    const AttentionForward f = forward();
    const MutView row{memory_.data(), DType::kBFloat16, kB * kT, kH * kD, kRow};
    return {.dout = f.out,
            .q = f.q,
            .k = f.k,
            .v = f.v,
            .out = f.out,
            .lse = f.lse,
            .delta = {},
            .dq = row,
            .dk = row,
            .dv = row,
            .shape = f.shape};
  }

  std::unique_ptr<AttentionChoice> make(AttentionKernels wanted) {
    return std::make_unique<AttentionChoice>(ChoiceOptions{
        .wanted = wanted,
        .device = "a device",
        .make_planner = [this]() -> std::unique_ptr<AttentionPlanner> {
          ++planners_;
          if (missing_) throw *missing_;
          return std::make_unique<HostPlanner>(testing::Planted::kNothing, testing::HostPlan::Queue{}, library_);
        },
        .free_bytes = [this] { return free_bytes_; },
        .test =
            [this](AttentionPlan&, const AttentionCase&) {
              ++tests_;
              return difference_;
            },
        .reserve = [this](Stream&, int64_t bytes) { reserved_ = bytes; }});
  }
  /// The work of a step.
  void work(AttentionChoice& choice) {
    forward_plan_ = choice.serve(forward(), stream_);
    backward_plan_ = choice.serve(backward(), stream_);
  }
  /// What one rank does before its first step; its report.
  std::vector<std::string> decide(AttentionChoice& choice) {
    work(choice);
    choice.use(choice.measure(choice.met()));
    EXPECT_THAT(choice.prepare().sections, IsEmpty());
    const std::vector<std::string> lines = choice.report();
    work(choice);
    return lines;
  }
  /// The reason under `auto`; under `cudnn` it is an error with the same words.
  std::string reason() {
    const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto);
    const std::vector<std::string> lines = decide(*choice);
    EXPECT_EQ(forward_plan_, nullptr);
    EXPECT_EQ(backward_plan_, nullptr);
    if (lines.size() != 1 || !lines[0].starts_with("attention uses our own kernels: ")) {
      ADD_FAILURE() << ::testing::PrintToString(lines);
      return "";
    }
    std::string reason = lines[0].substr(32);
    try {
      decide(*make(AttentionKernels::kCudnn));
      ADD_FAILURE() << "cuDNN was chosen";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      EXPECT_THAT(error.what(), HasSubstr(str_cat("[train.attention] \"cudnn\" cannot be used: ", reason,
                                                  "; choose \"auto\" or \"own\"")));
    }
    return reason;
  }

  alignas(16) std::array<std::byte, 64> memory_{};
  SynchronousStream stream_;
  Library library_{.version = 91900, .sm = 90};
  int64_t free_bytes_ = kSpare + (int64_t{1} << 20);
  std::optional<Error> missing_;
  std::string difference_;
  int planners_ = 0, tests_ = 0;
  int64_t reserved_ = 0;
  AttentionPlan *forward_plan_ = nullptr, *backward_plan_ = nullptr;
};

TEST_F(CudnnChoice, WhereItHoldsBothAutoAndCudnnTakeIt) {
  for (const AttentionKernels wanted : {AttentionKernels::kAuto, AttentionKernels::kCudnn}) {
    tests_ = reserved_ = 0;
    const std::unique_ptr<AttentionChoice> choice = make(wanted);
    EXPECT_THAT(decide(*choice), ElementsAre("attention uses cuDNN 9.19.0, with a workspace of 0 MB"));
    EXPECT_NE(forward_plan_, nullptr);
    EXPECT_NE(backward_plan_, nullptr);
    EXPECT_EQ(tests_, 2) << "forward and backward";
    EXPECT_EQ(reserved_, kWorkspace);
    EXPECT_EQ(choice->workspace_bytes(), kWorkspace);
  }
}

TEST_F(CudnnChoice, NothingIsServedBeforeItIsChosen) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto);
  work(*choice);
  EXPECT_EQ(forward_plan_, nullptr);
  work(*choice);
  const TunedChoices met = choice->met();
  EXPECT_EQ(met.device, "a device");
  EXPECT_EQ(met.sections.at("attention").library, "cuDNN 9.19.0");
  EXPECT_EQ(num_choices(met), 2) << "a case is one question";
}

TEST_F(CudnnChoice, WhatComesBehindTheReportIsOurOwn) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kCudnn);
  decide(*choice);
  AttentionForward shorter = forward();
  shorter.shape.B = 1;
  EXPECT_EQ(choice->serve(shorter, stream_), nullptr);
  EXPECT_EQ(num_choices(choice->met()), 2);
  AttentionBackward adding = backward();
  adding.mode = GradMode::kAccumulate;
  EXPECT_EQ(choice->serve(adding, stream_), nullptr) << "of the case, outside the contract";
  EXPECT_EQ(planners_, 1);
}

TEST_F(CudnnChoice, ACallOutsideTheContractIsNoQuestion) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto);
  AttentionForward capped = forward();
  capped.shape.scores.softcap = 30;
  EXPECT_EQ(choice->serve(capped, stream_), nullptr);
  EXPECT_EQ(num_choices(choice->met()), 0);
  EXPECT_THAT(choice->report(),
              ElementsAre("attention uses our own kernels: expected plain causal attention, got a soft cap"));
  const std::unique_ptr<AttentionChoice> demanded = make(AttentionKernels::kCudnn);
  EXPECT_EQ(demanded->serve(capped, stream_), nullptr);
  EXPECT_THROW(demanded->report(), Error);
}

TEST_F(CudnnChoice, APartMayBeOurOwn) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto);
  AttentionBackward adding = backward();
  adding.mode = GradMode::kAccumulate;
  choice->serve(adding, stream_);
  EXPECT_THAT(decide(*choice),
              ElementsAre(HasSubstr("a part of attention uses cuDNN 9.19.0"),
                          HasSubstr("a part of attention uses our own kernels: expected gradients that are")));
}

TEST_F(CudnnChoice, TheWorkspaceMustHaveRoomBesideTheTest) {
  free_bytes_ = kSpare + kWorkspace;
  EXPECT_THAT(
      decide(*make(AttentionKernels::kAuto)),
      ElementsAre(HasSubstr("a part of attention uses cuDNN"),
                  AllOf(HasSubstr("a part of attention uses our own kernels: expected "),
                        HasSubstr("bytes of memory for cuDNN's workspace and the comparison with our own kernels, "
                                  "got 65536"))));
  EXPECT_EQ(backward_plan_, nullptr);
  EXPECT_EQ(tests_, 1) << "the forward's";
  EXPECT_LT(reserved_, kWorkspace);
  EXPECT_THROW(decide(*make(AttentionKernels::kCudnn)), Error);
}

TEST_F(CudnnChoice, ResultsThatDifferAreRefused) {
  difference_ = "a dq that is off";
  EXPECT_EQ(reason(), "expected cuDNN to agree with our own kernels, got a dq that is off");
}

TEST_F(CudnnChoice, ALibraryThatIsMissingOrKnownToBeBadIsNotUsed) {
  missing_ = input_error("cuDNN", "found none,\nhere or there");
  EXPECT_EQ(reason(), "[cuDNN] found none,\\nhere or there") << "on one line";
  missing_.reset();
  library_.version = 91000;
  EXPECT_THAT(reason(), HasSubstr("expected a cuDNN without known errors, got 9.10.0: its backward of bf16 is wrong"));
  EXPECT_EQ(tests_, 0);
}

// It is refused before anything is loaded or allocated.
TEST_F(CudnnChoice, ALibraryThatIsDemandedIsMissedAtOnce) {
  library_.sm = 75;
  EXPECT_THROW(make(AttentionKernels::kCudnn), Error);
  missing_ = input_error("cuDNN", "found none");
  EXPECT_THROW(make(AttentionKernels::kCudnn), Error);
}

TEST_F(CudnnChoice, ErrorsOfMemoryAndOfTheDeviceArePassedOn) {
  const auto code = [&] {
    try {
      decide(*make(AttentionKernels::kAuto));
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kDone;
  };
  missing_ = resource_error("device", "lost");
  EXPECT_EQ(code(), ExitCode::kResource);
  missing_.reset();
  for (const bool backward : {false, true}) {
    const std::unique_ptr<AttentionChoice> choice = std::make_unique<AttentionChoice>(ChoiceOptions{
        .wanted = AttentionKernels::kAuto,
        .device = "a device",
        .make_planner =
            [&] {
              return std::make_unique<HostPlanner>(testing::Planted::kNothing, testing::HostPlan::Queue{}, library_);
            },
        .free_bytes = [] { return int64_t{1} << 40; },
        .test = [&](AttentionPlan&, const AttentionCase& asked) -> std::string {
          if (asked.backward == backward) throw resource_error("cuDNN", "the device failed");
          return "";
        },
        .reserve = [](Stream&, int64_t) {}});
    EXPECT_THROW(decide(*choice), Error) << backward;
  }
}

TEST_F(CudnnChoice, ErrorsOfMemoryWhilePlansAreMadeArePassedOn) {
  struct FailingPlanner final : AttentionPlanner {
    Library library() const override { return {.version = 91900, .sm = 90}; }
    std::unique_ptr<AttentionPlan> make(const AttentionCase&) override { throw resource_error("cuDNN", "no memory"); }
  };
  AttentionChoice choice({.wanted = AttentionKernels::kAuto,
                          .device = "a device",
                          .make_planner = [] { return std::make_unique<FailingPlanner>(); },
                          .free_bytes = [] { return int64_t{1} << 40; },
                          .test = [](AttentionPlan&, const AttentionCase&) { return std::string(); },
                          .reserve = [](Stream&, int64_t) {}});
  EXPECT_THROW(decide(choice), Error);
}

TEST_F(CudnnChoice, AChoiceIsKeptWithoutAnotherTest) {
  const std::unique_ptr<AttentionChoice> first = make(AttentionKernels::kAuto);
  decide(*first);
  const TunedChoices stored = first->met();
  tests_ = 0;
  const std::unique_ptr<AttentionChoice> second = make(AttentionKernels::kAuto);
  EXPECT_EQ(why_not(second->met(), stored), "");
  second->use(stored);
  work(*second);
  EXPECT_NE(backward_plan_, nullptr) << "as it was, from the first call";
  EXPECT_EQ(num_choices(unanswered(second->met(), stored)), 0);
  EXPECT_THAT(second->prepare().sections, IsEmpty());
  EXPECT_THAT(second->report(), ElementsAre(HasSubstr("cuDNN 9.19.0")));
  EXPECT_EQ(tests_, 0);
  library_.version = 92000;
  EXPECT_EQ(why_not(make(AttentionKernels::kCudnn)->met(), stored),
            "attention: cuDNN 9.20.0, demanded, made with cuDNN 9.19.0");
}

// What other ranks say of their memory is known when all have prepared.
TEST_F(CudnnChoice, ARankWithoutRoomSaysWhatItDoesInstead) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto),
                                         demanded = make(AttentionKernels::kCudnn);
  for (AttentionChoice* each : {choice.get(), demanded.get()}) {
    work(*each);
    each->use(each->measure(each->met()));
  }
  free_bytes_ = kSpare + 1000;
  const TunedChoices refused = choice->prepare();
  ASSERT_EQ(num_choices(refused), 1) << "the forward has room";
  const auto& [question, answer] = *refused.sections.at("attention").choices.begin();
  EXPECT_TRUE(case_of(question).backward);
  EXPECT_EQ(answer, "own: expected 65536 bytes of memory for cuDNN's workspace, got 1000");
  TunedChoices all = choice->met();
  all.sections.at("attention").choices.at(question) = answer;
  choice->use(all);
  work(*choice);
  EXPECT_NE(forward_plan_, nullptr);
  EXPECT_EQ(backward_plan_, nullptr);
  EXPECT_THAT(choice->report(), ElementsAre(HasSubstr("a part"), HasSubstr("got 1000")));
  EXPECT_THROW(demanded->prepare(), Error);
}

TEST_F(CudnnChoice, RanksOfSeveralKindsHaveOurOwn) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto),
                                         demanded = make(AttentionKernels::kCudnn);
  work(*choice);
  EXPECT_THAT(choice->report(),
              ElementsAre("attention uses our own kernels: expected one version of cuDNN and one GPU model on all "
                          "ranks, got several"));
  work(*demanded);
  EXPECT_THROW(demanded->report(), Error);
}

TEST_F(CudnnChoice, AnswersThatAreNoneAreDamage) {
  const std::unique_ptr<AttentionChoice> choice = make(AttentionKernels::kAuto);
  work(*choice);
  TunedChoices damaged = choice->met();
  damaged.sections.at("attention").choices.begin()->second = "theirs";
  try {
    choice->use(damaged);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    EXPECT_THAT(error.what(), HasSubstr("got \"theirs\""));
  }
}

}  // namespace
}  // namespace ashlar::cudnn::choice_test
