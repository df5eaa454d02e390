#include "core/tuning/joined_tuners.h"

#include <utility>

#include "core/base/error.h"

namespace ashlar {

std::map<std::string, std::string> reasons_against(const TunedChoices& made, const TunedChoices& here) {
  std::map<std::string, std::string> reasons;
  for (const auto& [name, section] : here.sections) {
    const auto other = made.sections.find(name);
    if (here.device != made.device) {
      reasons[name] = str_cat("device: ", here.device, ", made on ", made.device);
    } else if (other != made.sections.end() && other->second.library != section.library) {
      reasons[name] = str_cat(name, ": ", section.library, ", made with ", other->second.library);
    }
  }
  return reasons;
}

JoinedTuners::JoinedTuners(std::vector<Tuner*> parts) : parts_(std::move(parts)) { ASHLAR_CHECK(!parts_.empty()); }

TunedChoices JoinedTuners::met() const {
  TunedChoices all = parts_.front()->met();
  for (Tuner* const part : parts_) all.sections.merge(part->met().sections);
  return all;
}

TunedChoices JoinedTuners::measure(const TunedChoices& questions) {
  TunedChoices all{.device = questions.device, .sections = {}};
  for (Tuner* const part : parts_) all.sections.merge(part->measure(questions).sections);
  return all;
}

void JoinedTuners::use(const TunedChoices& choices) {
  for (Tuner* const part : parts_) part->use(choices);
}

TunedChoices JoinedTuners::prepare() {
  TunedChoices all;
  for (Tuner* const part : parts_) {
    if (auto* const preparing = dynamic_cast<PreparingTuner*>(part)) all.sections.merge(preparing->prepare().sections);
  }
  return all;
}

std::vector<std::string> JoinedTuners::report() {
  return lines_of([](PreparingTuner& part) { return part.report(); });
}

std::vector<std::string> JoinedTuners::details() {
  return lines_of([](PreparingTuner& part) { return part.details(); });
}

std::vector<std::string> JoinedTuners::lines_of(
    const std::function<std::vector<std::string>(PreparingTuner& part)>& lines) const {
  std::vector<std::string> all;
  for (Tuner* const part : parts_) {
    auto* const preparing = dynamic_cast<PreparingTuner*>(part);
    if (preparing == nullptr) continue;
    for (std::string& line : lines(*preparing)) all.push_back(std::move(line));
  }
  return all;
}

}  // namespace ashlar
