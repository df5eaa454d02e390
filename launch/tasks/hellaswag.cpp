#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "launch/tasks/python_text.h"
#include "launch/tasks/task.h"

// Zellers et al. 2019, "HellaSwag: Can a Machine Really Finish Your Sentence?" (arXiv:1905.07830).
namespace ashlar::tasks {

namespace {

const Source kHellaSwagSource = {
    .folder = "hellaswag",
    .licence = "MIT",
    .addresses = {"https://raw.githubusercontent.com/rowanz/hellaswag/master/data/hellaswag_val.jsonl"}};

/// Removes the marks of WikiHow: " [title]", and all else in brackets.
std::string without_marks(std::string_view raw) {
  const std::string text = replace_all(std::string(strip(raw)), " [title]", ". ");
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text[at] == '[' ? text.find_first_of("]\n", at) : std::string::npos;
    if (end != std::string::npos && text[end] == ']') {
      at = end + 1;
    } else {
      out += text[at++];
    }
  }
  return replace_all(std::move(out), "  ", " ");
}

/// The right ending: a number in the published file, the digits as a text in Hugging Face's copy of it.
int64_t label_of(const Record& r) {
  const nlohmann::json& value = value_at(r, {"label"});
  if (!value.is_string()) return integer_at(r, {"label"});
  const auto label = parse_number<int64_t>(value.get<std::string>());
  if (!label) throw bad_record(r, str_cat("label ", value.dump(), ": expected a number"));
  return *label;
}

Document hellaswag_document(const Record& r) {
  const std::string context = without_marks(text_at(r, {"activity_label"}) + ": " + text_at(r, {"ctx_a"}) + " " +
                                            capitalize(text_at(r, {"ctx_b"})));
  Document document{.gold = label_of(r)};
  for (const std::string_view i : {"0", "1", "2", "3"}) {
    const std::string ending = without_marks(text_at(r, {"endings", i}));
    document.choices.push_back({.context = context, .continuation = " " + ending});
    document.lengths.push_back(length(ending));
  }
  return document;
}

}  // namespace

Task hellaswag() {
  return {
      .name = "hellaswag",
      .metric = Metric::kChoiceNorm,
      .records = 10042,
      .source = &kHellaSwagSource,
      .files = {"hellaswag/hellaswag_val.jsonl"},
      .read = [](const std::filesystem::path& data) { return read_json_lines(data / "hellaswag/hellaswag_val.jsonl"); },
      .document = hellaswag_document};
}

}  // namespace ashlar::tasks
