#include "launch/tasks/labelled_choices.h"
#include "launch/tasks/task.h"

// Mihaylov et al. 2018, "Can a Suit of Armor Conduct Electricity?" (arXiv:1809.02789).
namespace ashlar::tasks {

namespace {

const Source kOpenBookSource = {
    .folder = "openbookqa",
    .licence = "Apache-2.0",
    .addresses = {"https://ai2-public-datasets.s3.amazonaws.com/open-book-qa/OpenBookQA-V1-Sep2018.zip"}};
constexpr const char* kOpenBookFile = "openbookqa/OpenBookQA-V1-Sep2018/Data/Main/test.jsonl";

}  // namespace

Task openbookqa() {
  return {.name = "openbookqa",
          .metric = Metric::kChoiceNorm,
          .records = 500,
          .source = &kOpenBookSource,
          .files = {kOpenBookFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kOpenBookFile); },
          .document =
              [](const Record& r) {
                return labelled_choices(r, text_at(r, {"question", "stem"}));
              }};
}

}  // namespace ashlar::tasks
