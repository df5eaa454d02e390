#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Sakaguchi et al. 2019, "WinoGrande: An Adversarial Winograd Schema Challenge at Scale" (arXiv:1907.10641).
namespace ashlar::tasks {

namespace {

const Source kWinograndeSource = {
    .folder = "winogrande",
    .licence = "CC BY",
    .addresses = {"https://storage.googleapis.com/ai2-mosaic/public/winogrande/winogrande_1.1.zip"}};
constexpr const char* kWinograndeFile = "winogrande/winogrande_1.1/dev.jsonl";

/// The two options make two contexts; the rest of the sentence is scored after each.
Document winogrande_document(const Record& r) {
  const std::string sentence = text_at(r, {"sentence"}), answer = text_at(r, {"answer"});
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos) throw bad_record(r, "the sentence has no _");
  if (answer != "1" && answer != "2")
    throw bad_record(r, str_cat("field answer: expected 1 or 2, got ", printable(answer)));
  const std::string rest(strip(std::string_view(sentence).substr(blank + 1)));
  Document document{.gold = answer == "1" ? 0 : 1};
  for (const std::string_view option : {"option1", "option2"})
    document.choices.push_back(
        {.context = sentence.substr(0, blank) + text_at(r, {option}), .continuation = " " + rest});
  return document;
}

}  // namespace

Task winogrande() {
  return {.name = "winogrande",
          .metric = Metric::kChoice,
          .records = 1267,
          .source = &kWinograndeSource,
          .files = {kWinograndeFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kWinograndeFile); },
          .document = winogrande_document};
}

}  // namespace ashlar::tasks
