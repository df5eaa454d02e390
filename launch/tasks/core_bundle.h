#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/tasks/records.h"

namespace ashlar::tasks {

enum class CoreKind : uint8_t {
  kMultipleChoice,    ///< one context, several continuations: {"query", "choices", "gold"}
  kSchema,            ///< several contexts, one continuation: {"context_options", "continuation", "gold"}
  kLanguageModeling,  ///< one context, one continuation: {"context", "continuation"}
};

/// A task of core.yaml.
struct CoreTask {
  std::string label;
  CoreKind kind = CoreKind::kMultipleChoice;
  std::filesystem::path file;  ///< a JSON object on each line
  int64_t shots = 0;           ///< solved examples before each question
  std::string delimiter;       ///< between context and continuation
  double baseline = 0;         ///< accuracy of guessing
};

inline constexpr const char* kCoreName = "core";
inline constexpr int64_t kCoreTasks = 22;

/// Reads core.yaml and eval_meta_data.csv of the "eval bundle" in the folder of --task-data. Throws a damaged-data
/// error that names the line of anything unexpected, and an input error if a file is missing.
std::vector<CoreTask> read_core_tasks(const std::filesystem::path& data);

/// Reads the records of all tasks.
std::vector<Record> read_core_records(const std::filesystem::path& data);

}  // namespace ashlar::tasks
