#include "launch/tasks/task.h"

// Paperno et al. 2016, "The LAMBADA dataset" (arXiv:1606.06031), in the form that OpenAI published with GPT-2.
namespace ashlar::tasks {

namespace {

const Source kLambadaSource = {
    .folder = "lambada",
    .licence = "modified MIT of the GPT-2 repository",
    .addresses = {"https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl"}};
constexpr const char* kLambadaFile = "lambada/lambada_test.jsonl";

Document lambada_document(const Record& r) {
  const std::string text = text_at(r, {"text"});
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) throw bad_record(r, "the text has one word, expected a passage");
  return {.choices = {{.context = text.substr(0, space), .continuation = text.substr(space)}}};
}

}  // namespace

Task lambada() {
  return {.name = "lambada",
          .metric = Metric::kLastWord,
          .records = 5153,
          .source = &kLambadaSource,
          .files = {kLambadaFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kLambadaFile); },
          .document = lambada_document};
}

}  // namespace ashlar::tasks
