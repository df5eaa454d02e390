#include "launch/tasks/labelled_choices.h"

#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/tasks/python_text.h"

namespace ashlar::tasks {

Document labelled_choices(const Record& record, const std::string& context) {
  const nlohmann::json& choices = value_at(record, {"question", "choices"});
  const std::string key(strip_left(text_at(record, {"answerKey"})));
  Document document{.gold = -1};
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string index = std::to_string(i), text = text_at(record, {"question", "choices", index, "text"});
    if (document.gold < 0 && text_at(record, {"question", "choices", index, "label"}) == key)
      document.gold = static_cast<int64_t>(i);
    document.choices.push_back({.context = context, .continuation = " " + text});
    document.lengths.push_back(length(text));
  }
  if (document.gold < 0) throw bad_record(record, str_cat("answerKey ", printable(key), " is the label of no choice"));
  return document;
}

}  // namespace ashlar::tasks
