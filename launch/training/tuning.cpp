#include "launch/training/tuning.h"

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "core/tuning/joined_tuners.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

/// Returns the device and libraries without the choices.
TunedChoices bare(TunedChoices choices) {
  for (auto& [name, section] : choices.sections) section.choices.clear();
  return choices;
}

/// Separator of two joined texts. The first text must not contain it.
constexpr char kBetween = '\n';
std::string joined(const std::pair<std::string, std::string>& parts) {
  return str_cat(parts.first, std::string(1, kBetween), parts.second);
}
std::pair<std::string, std::string> split(const std::string& text) {
  const size_t end = text.find(kBetween);
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace

Tuning::Tuning(Tuner& tuner, comm::ControlPlane& ranks, Log& log, std::filesystem::path file,
               std::function<void()> after_answer)
    : tuner_(tuner),
      ranks_(ranks),
      log_(log),
      file_(std::move(file)),
      after_answer_(std::move(after_answer)),
      choices_(bare(tuner.met())) {}

void Tuning::share(const std::string& text, const std::string& source) {
  const std::string all = comm::broadcast_text(ranks_, text, 0);
  comm::try_on_all_ranks(ranks_, [&] {
    const TunedChoices read = choices_from_json(all, source);
    tuner_.use(read);
    choices_ = read;
    text_ = all;
  });
}

void Tuning::reuse(const std::string& saved) {
  const bool first = ranks_.rank() == 0;
  std::string text = first ? saved : "";
  comm::try_on_first_rank(ranks_, [&] {
    if (!text.empty()) return;
    io::require_regular_file(file_, "run");
    text = io::text_if_readable(file_);
  });
  const std::string source = saved.empty() ? file_.string() : "the checkpoint";
  text = comm::broadcast_text(ranks_, text, 0);
  if (text.empty()) return;
  TunedChoices made;
  comm::try_on_all_ranks(ranks_, [&] { made = choices_from_json(text, source); });
  std::vector<std::string> against;
  for (const auto& [name, reason] : reasons_against(made, tuner_.met())) against.push_back(joined({name, reason}));
  against = comm::unite_texts(ranks_, std::move(against));
  std::set<std::string> warned;
  for (const std::string& each : against) {
    const auto [name, reason] = split(each);
    made.sections.erase(name);
    if (first && warned.insert(reason).second)
      log_.info(str_cat("algorithm choices in ", source, " are measured again: ", reason));
  }
  if (made.sections.empty()) return;
  share(against.empty() ? text : to_json(made), source);
  if (first) log_.info(str_cat(num_choices(choices_), " algorithm choices from ", source));
}

TunedChoices Tuning::measure(const TunedChoices& questions) {
  TunedChoices answers = bare(questions);
  for (const auto& [name, section] : questions.sections) {
    for (const auto& [question, none] : section.choices) {
      TunedChoices one = bare(questions);
      one.sections.at(name).choices.emplace(question, none);
      answers = united(answers, tuner_.measure(one));
      if (after_answer_) after_answer_();
    }
  }
  return answers;
}

TunedChoices Tuning::asked_by_all() {
  const TunedChoices met = tuner_.met();
  // 1. If ranks differ in the device or library of a section, they cannot share its choices.
  std::vector<std::string> kinds, questions;
  for (const auto& [name, section] : met.sections) {
    kinds.push_back(joined({name, str_cat(met.device, ", ", section.library)}));
    for (const auto& [question, answer] : section.choices) questions.push_back(joined({name, question}));
  }
  std::map<std::string, std::vector<std::string>> kinds_of;
  for (const std::string& each : comm::unite_texts(ranks_, std::move(kinds))) {
    const auto [name, kind] = split(each);
    kinds_of[name].push_back(kind);
  }
  // 2. Collects the operations of all ranks in the other sections.
  TunedChoices asked = bare(met);
  for (const auto& [name, different] : kinds_of) {
    if (different.size() == 1) continue;
    asked.sections.erase(name);
    if (ranks_.rank() == 0 && differing_.insert(name).second)
      log_.warn(str_cat("ranks have ", different.size(), " kinds of devices or libraries (", name, "), such as ",
                        different.front(),
                        ": no algorithms are chosen for them, each rank uses the default of its library"));
  }
  for (const std::string& each : comm::unite_texts(ranks_, std::move(questions))) {
    const auto [name, question] = split(each);
    const auto section = asked.sections.find(name);
    if (section != asked.sections.end()) section->second.choices.emplace(question, "");
  }
  return asked;
}

bool Tuning::drop_unsupported_choices() {
  std::vector<std::string> refused;
  auto* const preparing = dynamic_cast<PreparingTuner*>(&tuner_);
  comm::try_on_all_ranks(ranks_, [&] {
    if (preparing == nullptr) return;
    for (const auto& [name, section] : preparing->prepare().sections)
      for (const auto& [question, answer] : section.choices)
        refused.push_back(joined({joined({name, question}), answer}));
  });
  refused = comm::unite_texts(ranks_, std::move(refused));
  TunedChoices all = choices_;
  std::string before;
  for (const std::string& each : refused) {
    const size_t end = each.rfind(kBetween);
    const std::string asked = each.substr(0, end);
    if (asked == std::exchange(before, asked)) continue;  // of different answers for one operation, the first counts
    const auto [name, question] = split(asked);
    all.sections.at(name).choices.at(question) = each.substr(end + 1);
  }
  if (all == choices_) return false;
  share(to_json(all), file_.string());
  return true;
}

bool Tuning::complete() {
  completed_ = true;
  const bool first = ranks_.rank() == 0;
  // 1. The first rank measures the choices that are still open.
  const TunedChoices open = unanswered(asked_by_all(), choices_);
  const bool measures = num_choices(open) > 0;
  const auto begin = std::chrono::steady_clock::now();
  if (measures) {
    std::string text;
    comm::try_on_first_rank(ranks_, [&] { text = to_json(united(choices_, measure(open))); });
    share(text, file_.string());
  }
  // 2. Replaces on all ranks each choice that a rank cannot use.
  const bool changed = drop_unsupported_choices();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  comm::try_on_first_rank(ranks_, [&] {
    if ((measures || changed) && !file_.empty()) io::write_file_atomically(file_, text_);
  });
  if (first && measures)
    log_.info(absl::StrFormat("%d algorithms chosen in %.1f s%s%s", num_choices(open), seconds,
                              file_.empty() ? "" : ", saved in ", file_.string()));
  if (measures || changed) return true;
  // 3. Logs the results.
  std::vector<std::string> lines;
  comm::try_on_all_ranks(ranks_, [&] {
    if (auto* const preparing = dynamic_cast<PreparingTuner*>(&tuner_)) lines = preparing->report();
  });
  lines = comm::unite_texts(ranks_, std::move(lines));
  for (const std::string& line : lines)
    if (first) log_.info(line);
  return false;
}

}  // namespace ashlar::training
