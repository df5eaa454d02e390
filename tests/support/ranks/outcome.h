#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "tests/support/ranks/gather_texts.h"

namespace ashlar::testing {

struct Outcome {
  ExitCode code = ExitCode::kDone;
  std::string text;
};

/// What a call that all ranks make throws. It must be the same line on all of them: an AllRanksError, unless there is
/// but one rank.
inline Outcome outcome_of(comm::ControlPlane& ranks, const std::function<void()>& call) {
  Outcome outcome;
  bool shared = false;
  try {
    call();
  } catch (const Error& error) {
    outcome = {.code = error.code(), .text = error.what()};
    shared = dynamic_cast<const comm::AllRanksError*>(&error) != nullptr;
  }
  EXPECT_EQ(shared, ranks.size() > 1 && outcome.code != ExitCode::kDone) << outcome.text;
  EXPECT_EQ(outcome.text.find('\n'), std::string::npos) << outcome.text;
  for (const std::string& text : gather_texts(ranks, outcome.text)) EXPECT_EQ(text, outcome.text);
  return outcome;
}

}  // namespace ashlar::testing
