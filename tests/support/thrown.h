#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"

namespace ashlar::testing {

/// The Error that `action` throws; fails the test when it throws none, or when its text has more than one line.
template <typename F>
Error error_of(const F& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return Error(ExitCode::kBug, "test", "none thrown");
}

/// The text of the Bug that `action` throws, or "no error".
template <typename F>
std::string bug_of(const F& action) {
  try {
    action();
  } catch (const Bug& bug) {
    return bug.what();
  }
  return "no error";
}

}  // namespace ashlar::testing
