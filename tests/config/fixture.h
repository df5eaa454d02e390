#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/config/schema.h"

namespace ashlar::config::testing {

/// The least that trains.
inline const char* const kMinimal = R"(
[model]
d_model = 128
n_layers = 4
n_heads = 4
[train]
steps = 1000
sequence_length = 64
global_batch = 12
[optimizer]
lr = 1e-3
[data]
path = "data/x"
)";

inline Facts facts() { return {.dataset_vocab_size = 65, .hardware_threads = 2}; }

inline Resolved resolved(const std::vector<std::string>& overrides, const std::string& text = kMinimal) {
  return resolve(parse_config(text, "test.toml", overrides), facts());
}

/// The line that tells of a derived value; empty when the key was given.
inline std::string derived_line(const Resolved& r, const std::string& key) {
  for (const DerivedValue& d : r.derived)
    if (d.key == key) return d.key + " = " + d.value + " (" + d.rule + ")";
  return "";
}

/// All errors of a configuration, empty when it is good.
inline std::vector<std::string> errors_of(const std::vector<std::string>& overrides, const std::string& text = kMinimal,
                                          const Facts& given = facts()) {
  try {
    resolve(parse_config(text, "test.toml", overrides), given);
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_FALSE(e.errors().empty());
    return e.errors();
  }
  return {};
}

/// Expects exactly one error, and that it begins with the key and holds the given text.
inline void expect_one(const std::vector<std::string>& errors, const std::string& key, const std::string& text) {
  ASSERT_EQ(errors.size(), 1U) << ::testing::PrintToString(errors);
  EXPECT_EQ(errors[0].rfind(key, 0), 0U) << errors[0];
  EXPECT_NE(errors[0].find(text), std::string::npos) << errors[0] << "\nlacks: " << text;
  EXPECT_EQ(errors[0].find('\n'), std::string::npos) << errors[0];
}

}  // namespace ashlar::config::testing
