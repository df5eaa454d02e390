#include "launch/tasks/task.h"

// Clark et al. 2019, "BoolQ: Exploring the Surprising Difficulty of Natural Yes/No Questions" (arXiv:1905.10044), in
// the form of SuperGLUE.
namespace ashlar::tasks {

namespace {

const Source kBoolqSource = {.folder = "boolq",
                             .licence = "CC BY-SA 3.0",
                             .addresses = {"https://dl.fbaipublicfiles.com/glue/superglue/data/v2/BoolQ.zip"}};
constexpr const char* kBoolqFile = "boolq/BoolQ/val.jsonl";

Document boolq_document(const Record& r) {
  const std::string context = text_at(r, {"passage"}) + "\nQuestion: " + text_at(r, {"question"}) + "?\nAnswer:";
  return {.choices = {{.context = context, .continuation = " no"}, {.context = context, .continuation = " yes"}},
          .gold = bool_at(r, {"label"}) ? 1 : 0};
}

}  // namespace

Task boolq() {
  return {.name = "boolq",
          .metric = Metric::kChoice,
          .records = 3270,
          .source = &kBoolqSource,
          .files = {kBoolqFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kBoolqFile); },
          .document = boolq_document};
}

}  // namespace ashlar::tasks
