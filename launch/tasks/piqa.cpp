#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Bisk et al. 2020, "PIQA: Reasoning about Physical Commonsense in Natural Language" (arXiv:1911.11641).
namespace ashlar::tasks {

namespace {

const Source kPiqaSource = {.folder = "piqa",
                            .licence = "AFL-3.0",
                            .addresses = {"https://yonatanbisk.com/piqa/data/valid.jsonl",
                                          "https://yonatanbisk.com/piqa/data/valid-labels.lst"}};

/// Reads the records, and the label of each from a second file.
std::vector<Record> piqa_records(const std::filesystem::path& data) {
  const std::filesystem::path labels_file = data / "piqa/valid-labels.lst";
  std::vector<Record> records = read_json_lines(data / "piqa/valid.jsonl");
  const std::vector<std::string> labels = read_lines(labels_file);
  if (labels.size() != records.size())
    throw damaged_error("tasks", printable(labels_file.string()), " has ", labels.size(), " lines, expected ",
                        records.size(), ", those of valid.jsonl; fetch both files again");
  for (size_t i = 0; i < records.size(); ++i) {
    const auto label = parse_number<int64_t>(strip(labels[i]));
    if (!label)
      throw damaged_error("tasks", printable(labels_file.string()), ", line ", i + 1, ": expected 0 or 1, got ",
                          printable(labels[i]), "; fetch the file again");
    nlohmann::json value = *records[i].value;
    value["label"] = *label;
    records[i] = make_record(std::move(value), records[i].place);
  }
  return records;
}

Document piqa_document(const Record& r) {
  const std::string context = "Question: " + text_at(r, {"goal"}) + "\nAnswer:";
  Document document{.gold = integer_at(r, {"label"})};
  for (const std::string_view field : {"sol1", "sol2"}) {
    const std::string solution = text_at(r, {field});
    document.choices.push_back({.context = context, .continuation = " " + solution});
    document.lengths.push_back(length(solution));
  }
  return document;
}

}  // namespace

Task piqa() {
  return {.name = "piqa",
          .metric = Metric::kChoiceNorm,
          .records = 1838,
          .source = &kPiqaSource,
          .files = {"piqa/valid.jsonl", "piqa/valid-labels.lst"},
          .read = piqa_records,
          .document = piqa_document};
}

}  // namespace ashlar::tasks
