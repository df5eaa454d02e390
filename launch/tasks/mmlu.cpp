#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Hendrycks et al. 2021, "Measuring Massive Multitask Language Understanding" (arXiv:2009.03300).
namespace ashlar::tasks {

namespace {

namespace fs = std::filesystem;

const Source kMmluSource = {
    .folder = "mmlu", .licence = "MIT", .addresses = {"https://people.eecs.berkeley.edu/~hendrycks/data.tar"}};
constexpr size_t kColumns = 6;  // question, four choices, answer

/// A record is {"subject": ..., "row": [question, A, B, C, D, answer]}.
std::vector<Record> subject_records(const fs::path& file, const std::string& subject) {
  std::vector<Record> records = read_csv(file, kColumns);
  for (Record& record : records) record = make_record({{"subject", subject}, {"row", *record.value}}, record.place);
  return records;
}

/// Reads the files SUBJECT_test.csv, in the order of their names.
std::vector<Record> mmlu_records(const fs::path& data) {
  constexpr std::string_view kEnding = "_test.csv";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(data / "mmlu/data/test"))
    if (entry.path().filename().string().ends_with(kEnding)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  std::vector<Record> records;
  for (const std::string& name : names) {
    std::vector<Record> of_subject =
        subject_records(data / "mmlu/data/test" / name, name.substr(0, name.size() - kEnding.size()));
    std::ranges::move(of_subject, std::back_inserter(records));
  }
  return records;
}

std::string mmlu_question(const Record& r) {
  std::string text(strip(text_at(r, {"row", "0"})));
  for (const auto& [letter, index] : {std::pair("A", "1"), {"B", "2"}, {"C", "3"}, {"D", "4"}})
    text += str_cat("\n", letter, ". ", text_at(r, {"row", index}));
  return text + "\nAnswer:";
}

std::string mmlu_answer(const Record& r) {
  const std::string answer = text_at(r, {"row", "5"});
  if (answer.size() != 1 || answer[0] < 'A' || answer[0] > 'D')
    throw bad_record(r, str_cat("the answer: expected A, B, C or D, got ", printable(answer)));
  return answer;
}

/// The description of the subject, then the first `shots` examples of SUBJECT_dev.csv.
std::string mmlu_examples(const fs::path& data, const Record& r, int64_t shots) {
  const std::string subject = text_at(r, {"subject"});
  std::string text = str_cat("The following are multiple choice questions (with answers) about ",
                             replace_all(subject, "_", " "), ".\n\n");
  if (shots == 0) return text;
  const fs::path file = data / "mmlu/data/dev" / (subject + "_dev.csv");
  const std::vector<Record> examples = subject_records(file, subject);
  if (std::ssize(examples) < shots)
    throw input_error("tasks", "--shots ", shots, ": ", printable(file.string()), " has ", examples.size(),
                      " examples; choose --shots of at most ", examples.size());
  for (int64_t i = 0; i < shots; ++i)
    text +=
        mmlu_question(examples[static_cast<size_t>(i)]) + " " + mmlu_answer(examples[static_cast<size_t>(i)]) + "\n\n";
  return text;
}

Document mmlu_document(const Record& r) {
  const std::string context = mmlu_question(r);
  Document document{.gold = mmlu_answer(r)[0] - 'A'};
  for (const char* letter : {" A", " B", " C", " D"})
    document.choices.push_back({.context = context, .continuation = letter});
  return document;
}

}  // namespace

Task mmlu() {
  return {.name = "mmlu",
          .metric = Metric::kChoice,
          .records = 14042,
          .source = &kMmluSource,
          .files = {"mmlu/data/test", "mmlu/data/dev"},
          .read = mmlu_records,
          .document = mmlu_document,
          .examples = mmlu_examples};
}

}  // namespace ashlar::tasks
