#include "launch/tasks/core_bundle.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/task.h"
#include "launch/tasks/yaml_list.h"

// Li et al. 2024, "DataComp-LM" (arXiv:2406.11794), in the form that nanochat publishes.
namespace ashlar::tasks {

namespace {

namespace fs = std::filesystem;

const Source kCoreSource = {.folder = "eval_bundle",
                            .licence = "those of its 22 data sets",
                            .addresses = {"https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip"},
                            .archive_has_folder = true};
constexpr const char* kTaskFile = "eval_bundle/core.yaml";
constexpr const char* kBaselineFile = "eval_bundle/eval_meta_data.csv";
constexpr const char* kDataFolder = "eval_bundle/eval_data";

CoreKind kind_of(const Record& entry) {
  const std::string name = text_at(entry, {"icl_task_type"});
  if (name == "multiple_choice") return CoreKind::kMultipleChoice;
  if (name == "schema") return CoreKind::kSchema;
  if (name == "language_modeling") return CoreKind::kLanguageModeling;
  throw bad_record(
      entry, str_cat("icl_task_type: expected multiple_choice, schema or language_modeling, got ", printable(name)));
}

int64_t shots_of(const Record& entry) {
  const nlohmann::json& list = value_at(entry, {"num_fewshot"});
  const auto shots =
      list.is_array() && list.size() == 1 ? parse_number<int64_t>(list[0].get<std::string>()) : std::nullopt;
  if (!shots || *shots < 0 || *shots > 1000)
    throw bad_record(entry, str_cat("num_fewshot: expected one number of examples in brackets, got ", list.dump()));
  return *shots;
}

fs::path file_of(const Record& entry, const fs::path& data) {
  const fs::path file = data / kDataFolder / text_at(entry, {"dataset_uri"});
  std::error_code none;
  if (!fs::is_regular_file(file, none))
    throw input_error("tasks", entry.place, ": the task ", printable(text_at(entry, {"label"})), " needs ",
                      printable(file.string()), ", which is not there; the bundle is incomplete: move it away and get ",
                      "it again (ashlar data fetch core)");
  return file;
}

/// Returns the accuracies of guessing by task, as shares.
std::map<std::string, double> baselines(const fs::path& data) {
  std::map<std::string, double> shares;
  for (const Record& row : read_csv_table(data / kBaselineFile)) {
    const std::string text = text_at(row, {"Random baseline"});
    const auto percent = parse_number<double>(text);
    if (!percent || !(*percent >= 0) || !(*percent < 100))
      throw bad_record(row, str_cat("Random baseline: expected a number from 0 to below 100, got ", printable(text)));
    shares[text_at(row, {"Eval Task"})] = 0.01 * *percent;
  }
  return shares;
}

}  // namespace

std::vector<CoreTask> read_core_tasks(const fs::path& data) {
  const std::map<std::string, double> guessing = baselines(data);
  std::vector<CoreTask> tasks;
  for (const Record& entry : read_yaml_list(data / kTaskFile, "icl_tasks")) {
    CoreTask task{.label = text_at(entry, {"label"}), .delimiter = " "};
    task.kind = kind_of(entry);
    task.shots = shots_of(entry);
    task.file = file_of(entry, data);
    if (entry.value->contains("continuation_delimiter")) task.delimiter = text_at(entry, {"continuation_delimiter"});
    const auto found = guessing.find(task.label);
    if (found == guessing.end())
      throw bad_record(entry, str_cat("the task ", printable(task.label), " has no row in ", kBaselineFile));
    task.baseline = found->second;
    if (std::ranges::find(tasks, task.label, &CoreTask::label) != tasks.end())
      throw bad_record(entry, str_cat("the task ", printable(task.label), " is given twice"));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<Record> read_core_records(const fs::path& data) {
  std::vector<Record> all;
  for (const CoreTask& task : read_core_tasks(data))
    std::ranges::move(read_json_lines(task.file), std::back_inserter(all));
  return all;
}

Task core() {
  return {.name = kCoreName,
          .source = &kCoreSource,
          .files = {kTaskFile, kBaselineFile, kDataFolder},
          .read = read_core_records};
}

}  // namespace ashlar::tasks
