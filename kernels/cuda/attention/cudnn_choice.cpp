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
  const auto answer = answers_.find(met->question);
  if (answer == answers_.end() || answer->second != kCudnn) return nullptr;
  met->plan = planner_->make(asked);  // what the run had before: kept
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
  // The text differs if cuDNN is demanded, so that saved choices of our own kernels are not used then.
  return str_cat("cuDNN ", version_text(library_->version),
                 options_.wanted == AttentionKernels::kCudnn ? ", demanded" : "");
}

TunedChoices AttentionChoice::met() const {
  TunedChoices met{.device = options_.device, .sections = {}};
  TunedChoices::Section& section = met.sections[kSection];
  section.library = library_text();
  for (const Met& each : met_) {
    const auto answer = answers_.find(each.question);
    section.choices[each.question] = answer != answers_.end() ? answer->second : "";
  }
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
    throw damaged_error("choices", "expected attention to be cudnn or own, got \"", answer,
                        "\"; remove choices.json from the run directory to choose again, or resume from another ",
                        "checkpoint");
  }
  answers_ = section->second.choices;
  for (Met& met : met_) {
    const auto answer = answers_.find(met.question);
    if (answer == answers_.end() || answer->second != kCudnn) met.plan.reset();
  }
}

TunedChoices AttentionChoice::prepare() {
  TunedChoices refused{.device = options_.device, .sections = {}};
  for (Met& met : met_) {
    const auto answer = answers_.find(met.question);
    if (answer == answers_.end() || answer->second != kCudnn) continue;
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
    const auto answer = answers_.find(met.question);
    const std::string text = answer != answers_.end() ? answer->second : "";
    if (text == kCudnn)
      any = true;
    else
      reasons.insert(text.empty() ? "expected one cuDNN and one kind of device on all ranks, got several"
                                  : text.substr(kOwn.size()));
  }
  std::vector<std::string> lines;
  const char* const what = any && !reasons.empty() ? "a part of attention is " : "attention is ";
  if (any)
    lines.push_back(str_cat(what, "that of cuDNN ", version_text(library_->version), ", with a workspace of ",
                            workspace_bytes() / 1000000, " MB"));
  for (const std::string& reason : reasons) {
    static_cast<void>(own(reason));
    lines.push_back(str_cat(what, "our own: ", reason));
  }
  return lines;
}

}  // namespace ashlar::cudnn
