#include "launch/training/tuning.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

namespace {

/// Device and libraries, without questions.
TunedChoices bare(TunedChoices choices) {
  for (auto& [name, section] : choices.sections) section.choices.clear();
  return choices;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// A question with its section, as one text.
constexpr char kBetween = '\n';

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
  if (first && text.empty()) text = text_of(file_);
  const std::string source = saved.empty() ? file_.string() : "the checkpoint";
  text = comm::broadcast_text(ranks_, text, 0);
  if (text.empty()) return;
  TunedChoices made;
  comm::try_on_all_ranks(ranks_, [&] { made = choices_from_json(text, source); });
  const std::string here = why_not(tuner_.met(), made);
  std::vector<std::string> reasons =
      comm::unite_texts(ranks_, here.empty() ? std::vector<std::string>{} : std::vector<std::string>{here});
  if (!reasons.empty()) {
    if (first) log_.info(str_cat("choices of algorithms in ", source, " are measured again: ", reasons.front()));
    return;
  }
  share(text, source);
  if (first) log_.info(str_cat(num_choices(choices_), " choices of algorithms from ", source));
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

bool Tuning::complete() {
  completed_ = true;
  const bool first = ranks_.rank() == 0;
  // 1. Ranks that differ cannot use each other's choices.
  const TunedChoices met = tuner_.met();
  const std::vector<std::string> kinds = comm::unite_texts(ranks_, {to_json(bare(met))});
  if (kinds.size() > 1) {
    if (first)
      log_.warn(str_cat("ranks have ", kinds.size(), " kinds of devices or libraries, such as ", met.device,
                        ": each uses the first algorithm that its library suggests"));
    return false;
  }
  // 2. What any rank asks.
  std::vector<std::string> questions;
  for (const auto& [name, section] : met.sections)
    for (const auto& [question, answer] : section.choices)
      questions.push_back(str_cat(name, std::string(1, kBetween), question));
  TunedChoices asked = bare(met);
  for (const std::string& text : comm::unite_texts(ranks_, std::move(questions))) {
    const size_t end = text.find(kBetween);
    asked.sections.at(text.substr(0, end)).choices.emplace(text.substr(end + 1), "");
  }
  const TunedChoices open = unanswered(asked, choices_);
  if (num_choices(open) == 0) return false;
  // 3. Answers, by rank 0.
  std::string text;
  const auto begin = std::chrono::steady_clock::now();
  comm::try_on_all_ranks(ranks_, [&] {
    if (!first) return;
    text = to_json(united(choices_, measure(open)));
    io::write_file_atomically(file_, text);
  });
  share(text, file_.string());
  if (!first) return true;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_.info(absl::StrFormat("%d algorithms chosen in %.1f s, kept in %s", num_choices(open), seconds, file_.string()));
  return true;
}

}  // namespace ashlar::training
