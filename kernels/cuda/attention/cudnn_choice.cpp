#include "kernels/cuda/attention/cudnn_choice.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_self_test.h"

namespace ashlar::cudnn {

namespace {

constexpr const char* kSection = "attention";
constexpr std::string_view kCudnn = "cudnn", kOwn = "own: ";
/// GPU memory reserved for later library allocations and allocator rounding.
constexpr int64_t kSpareBytes = int64_t{256} << 20;

}  // namespace

AttentionChoice::AttentionChoice(ChoiceOptions options) : options_(std::move(options)) {
  try {
    planner_ = options_.make_planner();
    library_ = planner_->library();
    absent_ = refusal(*library_);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    absent_ = error.what();
  }
  if (absent_.empty()) return;
  planner_.reset();
  static_cast<void>(own(absent_));
}

std::string AttentionChoice::own(const std::string& reason) const {
  if (options_.wanted == AttentionKernels::kCudnn)
    throw input_error("train.attention", "\"cudnn\" cannot be used: ", reason, "; choose \"auto\" or \"own\"");
  return str_cat(kOwn, reason);
}

std::string AttentionChoice::no_room(int64_t bytes, const char* what) const {
  const int64_t room = options_.free_bytes() - kSpareBytes;
  return bytes <= room
             ? ""
             : str_cat("expected ", bytes, " bytes of memory for ", what, ", got ", std::max<int64_t>(room, 0));
}

std::string_view AttentionChoice::choice_of(const Met& met) const {
  const auto answer = answers_.find(met.question);
  return answer != answers_.end() ? std::string_view(answer->second) : "";
}

template <typename Args>
AttentionPlan* AttentionChoice::serve_call(const Args& args, Stream& stream) {
  if (settled_ && met_.empty()) return nullptr;
  const AttentionCase asked = case_of(args);
  auto met = std::find_if(met_.begin(), met_.end(), [&](const Met& m) { return m.asked == asked; });
  if (settled_ && (met == met_.end() || met->plan == nullptr)) return nullptr;
  const std::string reason = planner_ == nullptr ? absent_ : refusal(args, *library_);
  if (!reason.empty()) {
    if (!settled_) unserved_.insert(reason);
    return nullptr;
  }
  if (met == met_.end()) {
    met_.push_back({.asked = asked, .question = text_of(asked), .stream = &stream, .plan = nullptr});
    met = std::prev(met_.end());
  }
  if (met->plan != nullptr) return met->plan.get();
  if (choice_of(*met) != kCudnn) return nullptr;
  met->plan = planner_->make(asked);  // cuDNN was chosen earlier, e.g. before a resume
  return met->plan.get();
}

AttentionPlan* AttentionChoice::serve(const AttentionForward& args, Stream& stream) { return serve_call(args, stream); }

AttentionPlan* AttentionChoice::serve(const AttentionBackward& args, Stream& stream) {
  return serve_call(args, stream);
}

int64_t AttentionChoice::workspace_bytes() const {
  int64_t bytes = 0;
  for (const Met& met : met_)
    if (met.plan != nullptr) bytes = std::max(bytes, met.plan->workspace_bytes());
  return bytes;
}

std::string AttentionChoice::library_text() const {
  if (!library_) return "no cuDNN";
  // If the user demands cuDNN, the text says so. Choices that were saved without this demand then have another text and
  // are not used: they may name our own kernels.
  return str_cat("cuDNN ", version_text(library_->version),
                 options_.wanted == AttentionKernels::kCudnn ? ", demanded" : "");
}

TunedChoices AttentionChoice::met() const {
  TunedChoices met{.device = options_.device, .sections = {}};
  TunedChoices::Section& section = met.sections[kSection];
  section.library = library_text();
  for (const Met& each : met_) section.choices[each.question] = choice_of(each);
  return met;
}

std::string AttentionChoice::answer_to(const AttentionCase& asked) {
  if (planner_ == nullptr) return own(absent_);
  std::unique_ptr<AttentionPlan> plan;
  try {
    plan = planner_->make(asked);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kInput) throw;
    return own(error.what());
  }
  std::string reason = no_room(plan->workspace_bytes() + self_test_bytes(asked),
                               "cuDNN's workspace and the comparison with our own kernels");
  if (reason.empty()) {
    reason = options_.test(*plan, asked);
    if (!reason.empty()) reason = str_cat("expected cuDNN to agree with our own kernels, got ", reason);
  }
  if (!reason.empty()) return own(reason);
  for (Met& met : met_)
    if (met.asked == asked) met.plan = std::move(plan);
  return std::string(kCudnn);
}

TunedChoices AttentionChoice::measure(const TunedChoices& questions) {
  TunedChoices answers{.device = options_.device, .sections = {}};
  const auto section = questions.sections.find(kSection);
  if (section == questions.sections.end()) return answers;
  TunedChoices::Section& out = answers.sections[kSection];
  out.library = library_text();
  for (const auto& [question, answer] : section->second.choices) out.choices[question] = answer_to(case_of(question));
  return answers;
}

void AttentionChoice::use(const TunedChoices& choices) {
  const auto section = choices.sections.find(kSection);
  if (section == choices.sections.end()) return;
  for (const auto& [question, answer] : section->second.choices) {
    if (answer.empty() || answer == kCudnn || answer.starts_with(kOwn)) continue;
    throw damaged_error(
        "choices", "expected a choice of attention that is \"cudnn\" or begins with \"own: \", got \"", answer,
        "\"; remove choices.json from the run directory to choose again, or resume from another ", "checkpoint");
  }
  answers_ = section->second.choices;
  for (Met& met : met_)
    if (choice_of(met) != kCudnn) met.plan.reset();
}

TunedChoices AttentionChoice::prepare() {
  TunedChoices refused{.device = options_.device, .sections = {}};
  for (Met& met : met_) {
    if (choice_of(met) != kCudnn) continue;
    std::string reason;
    try {
      if (met.plan == nullptr) met.plan = planner_->make(met.asked);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInput) throw;
      reason = error.what();
    }
    const int64_t bytes = met.plan != nullptr ? met.plan->workspace_bytes() : 0;
    if (reason.empty() && bytes > reserved_bytes_) {
      reason = no_room(bytes, "cuDNN's workspace");
      if (reason.empty()) {
        options_.reserve(*met.stream, bytes);
        reserved_bytes_ = bytes;
      }
    }
    if (!reason.empty()) refused.sections[kSection].choices[met.question] = own(reason);
  }
  return refused;
}

std::vector<std::string> AttentionChoice::report() {
  settled_ = true;
  std::set<std::string> reasons = unserved_;
  bool any = false;
  for (const Met& met : met_) {
    const std::string_view choice = choice_of(met);
    if (choice == kCudnn)
      any = true;
    else
      reasons.emplace(choice.empty() ? "expected one version of cuDNN and one GPU model on all ranks, got several"
                                     : choice.substr(kOwn.size()));
  }
  std::vector<std::string> lines;
  const char* const what = any && !reasons.empty() ? "a part of attention uses " : "attention uses ";
  if (any)
    lines.push_back(str_cat(what, "cuDNN ", version_text(library_->version), ", with a workspace of ",
                            workspace_bytes() / 1000000, " MB"));
  for (const std::string& reason : reasons) {
    static_cast<void>(own(reason));
    lines.push_back(str_cat(what, "our own kernels: ", reason));
  }
  return lines;
}

}  // namespace ashlar::cudnn
