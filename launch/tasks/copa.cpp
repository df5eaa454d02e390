#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/base/utf8.h"
#include "data/tokenizer/unicode.h"
#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Roemmele et al. 2011, "Choice of Plausible Alternatives", in the form of SuperGLUE.
namespace ashlar::tasks {

namespace {

const Source kCopaSource = {.folder = "copa",
                            .licence = "BSD-2-Clause",
                            .addresses = {"https://dl.fbaipublicfiles.com/glue/superglue/data/v2/COPA.zip"}};
constexpr const char* kCopaFile = "copa/COPA/val.jsonl";

std::string with_small_first(const std::string& text) {
  const size_t first = first_character(text);
  std::string out;
  if (first > 0) data::append_lower(next_code_point(text).value, out);
  return out + text.substr(first);
}

/// The premise loses its last character, the period. The choices have two spaces before them, as in the harness: one of
/// the choice, one between context and continuation.
Document copa_document(const Record& r) {
  const std::string asked = text_at(r, {"question"}), premise(strip(text_at(r, {"premise"})));
  if (asked != "cause" && asked != "effect")
    throw bad_record(r, str_cat("field question: expected cause or effect, got ", printable(asked)));
  if (premise.empty()) throw bad_record(r, "the premise is empty");
  const std::string context = premise.substr(0, premise.size() - 1) + (asked == "cause" ? " because" : " therefore");
  Document document{.gold = integer_at(r, {"label"})};
  for (const std::string_view field : {"choice1", "choice2"})
    document.choices.push_back({.context = context, .continuation = "  " + with_small_first(text_at(r, {field}))});
  return document;
}

}  // namespace

Task copa() {
  return {.name = "copa",
          .metric = Metric::kChoice,
          .records = 100,
          .source = &kCopaSource,
          .files = {kCopaFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kCopaFile); },
          .document = copa_document};
}

}  // namespace ashlar::tasks
