#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Welbl et al. 2017, "Crowdsourcing Multiple Choice Science Questions" (arXiv:1707.06209).
namespace ashlar::tasks {

namespace {

const Source kSciqSource = {.folder = "sciq",
                            .licence = "CC BY-NC 3.0",
                            .addresses = {"https://ai2-public-datasets.s3.amazonaws.com/sciq/SciQ.zip"}};
constexpr const char* kSciqFile = "sciq/SciQ dataset-2 3/test.json";

Document sciq_document(const Record& r) {
  const std::string context =
      std::string(strip_left(text_at(r, {"support"}))) + "\nQuestion: " + text_at(r, {"question"}) + "\nAnswer:";
  Document document{.gold = 3};
  for (const std::string_view field : {"distractor1", "distractor2", "distractor3", "correct_answer"}) {
    const std::string choice = text_at(r, {field});
    document.choices.push_back({.context = context, .continuation = " " + choice});
    document.lengths.push_back(length(choice));
  }
  return document;
}

}  // namespace

Task sciq() {
  return {.name = "sciq",
          .metric = Metric::kChoiceNorm,
          .records = 1000,
          .source = &kSciqSource,
          .files = {kSciqFile},
          .read = [](const std::filesystem::path& data) { return read_json_array(data / kSciqFile); },
          .document = sciq_document};
}

}  // namespace ashlar::tasks
