// Whether a run's attention is cuDNN's: when, with which words otherwise, on all ranks alike, and kept.
#include "kernels/cuda/attention/cudnn_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cudnn/host_planner.h"

namespace ashlar::cudnn {
namespace {

using ::testing::HasSubstr;
using testing::HostPlanner;

class CudnnChoice : public ::testing::Test {
 protected:
  CudnnChoice() {
    const Rows qkv{.batch = 64 * 48, .row = 48}, out{.batch = 64 * 16, .row = 16};
    args_.facts = {.B = 2, .T_q = 64, .T_kv = 64, .H = 2, .G = 2, .D = 8};
    args_.forward = {.B = 2, .T = 64, .H = 2, .G = 2, .D = 8, .q = qkv, .k = qkv, .v = qkv, .out = out};
    args_.backward = args_.forward;
    args_.backward.backward = true;
    args_.free_bytes = 1 << 20;
    args_.make_planner = [this] {
      ++planners_;
      return std::make_unique<HostPlanner>();
    };
    args_.test = [this](PreparedAttention&) {
      ++tests_;
      return difference_;
    };
  }
  std::string refused() {
    args_.wanted = Wanted::kCudnn;
    try {
      decide(args_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    ADD_FAILURE() << "cuDNN was chosen";
    return "";
  }
  std::string own_reason() {
    args_.wanted = Wanted::kAuto;
    const Decision decision = decide(args_);
    EXPECT_FALSE(decision.choice.cudnn);
    EXPECT_EQ(decision.prepared, nullptr);
    EXPECT_THAT(decision.choice.line(), HasSubstr("attention is our own: " + decision.choice.reason));
    return decision.choice.reason;
  }

  DecisionArgs args_;
  int planners_ = 0, tests_ = 0;
  std::string difference_;
};

TEST_F(CudnnChoice, WhereItHoldsBothAutoAndCudnnTakeIt) {
  for (const Wanted wanted : {Wanted::kAuto, Wanted::kCudnn}) {
    args_.wanted = wanted;
    const Decision decision = decide(args_);
    EXPECT_TRUE(decision.choice.cudnn);
    ASSERT_NE(decision.prepared, nullptr);
    EXPECT_EQ(decision.choice.workspace_bytes, 2 * 2 * 64 * 64 * 4);
    EXPECT_EQ(decision.choice.workspace_bytes, decision.prepared->workspace_bytes());
    EXPECT_THAT(decision.choice.line(), HasSubstr("cuDNN 9.19.0"));
  }
  EXPECT_EQ(tests_, 2);
}

TEST_F(CudnnChoice, OwnAsksNobody) {
  args_.wanted = Wanted::kOwn;
  EXPECT_FALSE(decide(args_).choice.cudnn);
  EXPECT_EQ(planners_, 0);
}

TEST_F(CudnnChoice, TheContractIsAskedBeforePlansAreMade) {
  args_.facts.document_mask = true;
  EXPECT_THAT(refused(), HasSubstr("[train.attention] expected cuDNN's attention to hold, got: expected plain causal "
                                   "attention, got a document mask"));
  EXPECT_THAT(own_reason(), HasSubstr("got a document mask"));
  EXPECT_EQ(tests_, 0);
}

TEST_F(CudnnChoice, TheWorkspaceMustFit) {
  args_.free_bytes = 2 * 2 * 64 * 64 * 4 - 1;
  EXPECT_THAT(refused(), HasSubstr("65536 bytes, got 65535"));
  EXPECT_THAT(own_reason(), HasSubstr("65536 bytes, got 65535"));
  args_.free_bytes += 1;
  EXPECT_TRUE(decide(args_).choice.cudnn);
}

TEST_F(CudnnChoice, ResultsThatDifferAreRefused) {
  difference_ = "a dq that is off";
  EXPECT_THAT(refused(), HasSubstr("expected its results to be those of our own kernels, got a dq that is off"));
  EXPECT_THAT(own_reason(), HasSubstr("a dq that is off"));
}

TEST_F(CudnnChoice, ALibraryThatIsMissingIsOwnUnlessItWasAskedFor) {
  args_.make_planner = []() -> std::unique_ptr<AttentionPlanner> { throw input_error("cuDNN", "found none"); };
  EXPECT_THAT(refused(), HasSubstr("[cuDNN] found none"));
  EXPECT_THAT(own_reason(), HasSubstr("[cuDNN] found none"));
}

TEST_F(CudnnChoice, OtherErrorsAreNotSwallowed) {
  args_.make_planner = []() -> std::unique_ptr<AttentionPlanner> { throw resource_error("device", "lost"); };
  EXPECT_THROW(decide(args_), Error);
}

TEST_F(CudnnChoice, RanksAgreeOnWhatAllCanDo) {
  const Choice hopper{.cudnn = true, .library = {.version = 91900, .sm = 90}, .workspace_bytes = 5};
  Choice more = hopper;
  more.workspace_bytes = 7;
  EXPECT_EQ(agreed(std::vector{hopper, more}), more);
  const Choice own{.reason = "no library"};
  EXPECT_EQ(agreed(std::vector{own}), own);
  const Choice mixed = agreed(std::vector{hopper, own, hopper});
  EXPECT_FALSE(mixed.cudnn);
  EXPECT_EQ(mixed.reason, "rank 1: no library");
  Choice newer = hopper;
  newer.library.version = 91901;
  const Choice versions = agreed(std::vector{hopper, hopper, newer});
  EXPECT_FALSE(versions.cudnn);
  EXPECT_THAT(versions.reason, HasSubstr("9.19.0 on sm_90 on rank 0 and 9.19.1 on sm_90 on rank 2"));
}

TEST_F(CudnnChoice, AChoiceIsKeptAsTextAndForTheSameLibraryOnly) {
  const Choice cudnn{.cudnn = true, .library = {.version = 91900, .sm = 90}, .workspace_bytes = 5};
  const Choice own{.reason = "expected bf16, got fp32"};
  EXPECT_EQ(choice_from_json(to_json(cudnn), "x"), cudnn);
  EXPECT_EQ(choice_from_json(to_json(own), "x"), own);
  EXPECT_TRUE(may_keep(cudnn, cudnn.library));
  EXPECT_FALSE(may_keep(cudnn, {.version = 92000, .sm = 90}));
  EXPECT_FALSE(may_keep(cudnn, {.version = 91900, .sm = 80}));
  EXPECT_TRUE(may_keep(own, cudnn.library));
  for (const char* text : {"", "{}", "[1]", R"({"attention":"mine","version":1,"sm":1,"workspace":1,"reason":""})"}) {
    try {
      choice_from_json(text, "choices.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
      EXPECT_THAT(error.what(), HasSubstr("[choices.json]"));
    }
  }
}

}  // namespace
}  // namespace ashlar::cudnn
