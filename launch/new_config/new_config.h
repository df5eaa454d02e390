#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/planner.h"

/// `ashlar new`: a complete configuration for a wanted number of parameters, by published rules.
namespace ashlar::new_config {

/// What is known of the dataset.
struct DatasetFacts {
  std::string path;
  int64_t vocab_size = 0;
  int64_t tokens = 0;                                              ///< of the training part
  std::function<int64_t(int64_t sequence_length)> resident_bytes;  ///< bytes that a rank holds of it
};

struct Request {
  int64_t parameters = 0;
  std::string like = "llama3";    ///< find_family()
  std::optional<int64_t> tokens;  ///< absent: kTokensPerParameter for each parameter that a token meets
  int64_t ranks = 1;
  DatasetFacts data;
  plan::Target target;
  std::string file;  ///< where the text will be written; run.dir and messages use its name
  int64_t hardware_threads = 1;
  int64_t program_bytes = 0;
};

struct NewConfig {
  std::string text;                  ///< TOML with a comment for each choice
  std::vector<std::string> summary;  ///< at most six lines
  std::vector<std::string> warnings;
  plan::Planned planned;  ///< the plan of `text`
};

/// Share of a device's memory that a plan may take: the rest is for what a plan cannot know.
inline constexpr double kUsedShare = 0.95;

/// Throws an input error if the request cannot be met: the size for the vocabulary, the tokens, or no layout fits the
/// devices; then it names the nearest miss and the number of devices that would do.
NewConfig make_config(const Request& request);

}  // namespace ashlar::new_config
