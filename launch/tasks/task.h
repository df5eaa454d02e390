#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/tasks/records.h"

namespace ashlar::tasks {

/// A continuation of a context, both texts. The probability of the continuation is scored.
struct Question {
  std::string context;
  std::string continuation;
};

/// One record of a task, ready to score.
struct Document {
  std::vector<Question> choices;   ///< of kLastWord and kGreedy: one
  std::vector<int64_t> lengths{};  ///< characters of each choice, for acc_norm
  int64_t gold = 0;                ///< index of the right choice
};

/// acc: the share of documents whose most probable choice is right. acc_norm: the same with each log probability
/// divided by the characters of the choice.
enum class Metric : uint8_t {
  kChoice,      ///< acc
  kChoiceNorm,  ///< acc and acc_norm
  kLastWord,    ///< acc: the share of words that greedy decoding gives; perplexity of the words
  kMeanChoice,  ///< acc: the choice with the largest mean log probability of its tokens, which `lengths` counts
  kGreedy,      ///< acc: the share of continuations that greedy decoding gives
};

/// Where the authors publish a task's files.
struct Source {
  std::string_view folder;   ///< in the folder of --task-data; tasks of one source share it
  std::string_view licence;  ///< of the data
  /// Addresses of the files or of one archive, which is unpacked into `folder`.
  std::vector<std::string_view> addresses;
  bool archive_has_folder = false;  ///< `folder` is in the archive
};

struct Task {
  std::string_view name;
  Metric metric = Metric::kChoice;
  int64_t records = 0;  ///< number of records of the published file; 0: not known
  const Source* source = nullptr;
  std::vector<std::string_view> files;  ///< paths in the folder of --task-data; a folder stands for its files
  std::vector<Record> (*read)(const std::filesystem::path& data) = nullptr;
  Document (*document)(const Record& record) = nullptr;  ///< throws bad_record; null: CORE (core_texts.h)
  /// Returns the text before a document's context with `shots` solved examples; null: without examples only.
  std::string (*examples)(const std::filesystem::path& data, const Record& record, int64_t shots) = nullptr;
};

/// All tasks, by name.
const std::vector<Task>& all_tasks();
/// Throws an input error that lists the tasks if there is none of this name.
const Task& task_named(std::string_view where, std::string_view name);

/// Returns the folder into which the files that the task's addresses name are put or unpacked.
std::filesystem::path folder_of_addresses(const Task& task, const std::filesystem::path& data);
/// Throws an input error that says where to get the files if one is missing below `data`.
void require_files(const Task& task, const std::filesystem::path& data);

// One for each file of the task list (README.md: how to add a task).
Task hellaswag();
Task arc_easy();
Task arc_challenge();
Task piqa();
Task winogrande();
Task lambada();
Task openbookqa();
Task boolq();
Task core();
Task copa();
Task sciq();
Task mmlu();

}  // namespace ashlar::tasks
