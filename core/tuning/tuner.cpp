#include "core/tuning/tuner.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/tuning/joined_tuners.h"

namespace ashlar {

namespace {

constexpr int kFormat = 1;

}  // namespace

std::string to_json(const TunedChoices& choices) {
  nlohmann::ordered_json sections = nlohmann::ordered_json::object();
  for (const auto& [name, section] : choices.sections)
    sections[name] = {{"library", section.library}, {"choices", section.choices}};
  return nlohmann::ordered_json{{"format", kFormat}, {"device", choices.device}, {"sections", sections}}.dump(1) + "\n";
}

TunedChoices choices_from_json(std::string_view text, std::string_view source) {
  const auto problem = [&](const std::string& sentence) {
    return damaged_error("choices", source, ": expected a list of algorithm choices; ", sentence,
                         "; remove this file to measure the algorithms again");
  };
  TunedChoices choices;
  io::reading_json(problem, [&] {
    const auto json = io::parse_json(text, io::JsonKeys::kUnique);
    const int format = json.at("format").get<int>();
    if (format != kFormat) throw problem(str_cat("format is ", format, ", not ", kFormat));
    choices.device = json.at("device").get<std::string>();
    for (const auto& [name, section] : json.at("sections").items()) {
      choices.sections[name] = {.library = section.at("library").get<std::string>(),
                                .choices = section.at("choices").get<std::map<std::string, std::string>>()};
    }
  });
  return choices;
}

std::string why_not(const TunedChoices& here, const TunedChoices& made) {
  const std::map<std::string, std::string> reasons = reasons_against(made, here);
  return reasons.empty() ? "" : reasons.begin()->second;
}

TunedChoices unanswered(const TunedChoices& asked, const TunedChoices& made) {
  TunedChoices open{.device = asked.device, .sections = {}};
  for (const auto& [name, section] : asked.sections) {
    TunedChoices::Section& left = open.sections[name];
    left.library = section.library;
    const auto other = made.sections.find(name);
    for (const auto& [question, answer] : section.choices) {
      const bool answered = other != made.sections.end() && other->second.choices.contains(question) &&
                            !other->second.choices.at(question).empty();
      if (!answered) left.choices.emplace(question, "");
    }
  }
  return open;
}

TunedChoices united(TunedChoices first, const TunedChoices& second) {
  ASHLAR_CHECK(why_not(first, second).empty(), why_not(first, second));
  for (const auto& [name, section] : second.sections) {
    TunedChoices::Section& into =
        first.sections.try_emplace(name, TunedChoices::Section{section.library, {}}).first->second;
    for (const auto& [question, answer] : section.choices) {
      std::string& own = into.choices[question];
      if (own.empty()) own = answer;
    }
  }
  return first;
}

int64_t num_choices(const TunedChoices& choices) {
  int64_t n = 0;
  for (const auto& [name, section] : choices.sections) n += static_cast<int64_t>(section.choices.size());
  return n;
}

}  // namespace ashlar
