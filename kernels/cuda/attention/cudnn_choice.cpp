#include "kernels/cuda/attention/cudnn_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/json.h"

namespace ashlar::cudnn {

PreparedAttention::PreparedAttention(AttentionPlanner& planner, const AttentionCase& forward,
                                     const AttentionCase& backward)
    : library_(planner.library()),
      forward_case_(forward),
      backward_case_(backward),
      forward_(planner.make(forward)),
      backward_(planner.make(backward)) {}

int64_t PreparedAttention::workspace_bytes() const {
  return std::max(forward_->workspace_bytes(), backward_->workspace_bytes());
}

AttentionPlan* PreparedAttention::plan_for(const AttentionForward& args) {
  return case_of(args) == forward_case_ && refusal(facts_of(args), library_).empty() ? forward_.get() : nullptr;
}

AttentionPlan* PreparedAttention::plan_for(const AttentionBackward& args) {
  return case_of(args) == backward_case_ && refusal(facts_of(args), library_).empty() ? backward_.get() : nullptr;
}

std::string Choice::line() const {
  if (!cudnn) return str_cat("attention is our own: ", reason);
  return str_cat("attention is that of cuDNN ", version_text(library.version), ", with a workspace of ",
                 workspace_bytes / 1000000, " MB");
}

Decision decide(const DecisionArgs& args) {
  Library library;
  const auto own = [&](const std::string& reason) {
    if (args.wanted == Wanted::kCudnn)
      throw input_error("train.attention", "expected cuDNN's attention to hold, got: ", reason,
                        "; choose \"auto\" or \"own\"");
    return Decision{.choice = {.library = library, .reason = reason}};
  };
  if (args.wanted == Wanted::kOwn) return own("train.attention = \"own\"");
  try {
    const std::unique_ptr<AttentionPlanner> planner = args.make_planner();
    library = planner->library();
    const std::string refused = refusal(args.facts, library);
    if (!refused.empty()) return own(refused);
    auto prepared = std::make_unique<PreparedAttention>(*planner, args.forward, args.backward);
    const int64_t workspace = prepared->workspace_bytes();
    if (workspace > args.free_bytes)
      return own(str_cat("expected memory for the workspace of its deterministic backward, ", workspace, " bytes, got ",
                         args.free_bytes));
    const std::string difference = args.test(*prepared);
    if (!difference.empty())
      return own(str_cat("expected its results to be those of our own kernels, got ", difference));
    return {.choice = {.cudnn = true, .library = library, .workspace_bytes = workspace},
            .prepared = std::move(prepared)};
  } catch (const Error& error) {
    if (args.wanted == Wanted::kCudnn || error.code() != ExitCode::kInput) throw;
    return own(error.what());
  }
}

Choice agreed(std::span<const Choice> choices) {
  ASHLAR_CHECK(!choices.empty());
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].cudnn) continue;
    Choice own = choices[rank];
    if (choices.size() > 1) own.reason = str_cat("rank ", rank, ": ", own.reason);
    return own;
  }
  Choice all = choices[0];
  for (size_t rank = 1; rank < choices.size(); ++rank) {
    if (choices[rank].library != all.library)
      return {.library = all.library,
              .reason = str_cat("expected one cuDNN and one kind of device on all ranks, got ",
                                version_text(all.library.version), " on sm_", all.library.sm, " on rank 0 and ",
                                version_text(choices[rank].library.version), " on sm_", choices[rank].library.sm,
                                " on rank ", rank)};
    all.workspace_bytes = std::max(all.workspace_bytes, choices[rank].workspace_bytes);
  }
  return all;
}

std::string to_json(const Choice& choice) {
  return nlohmann::json{{"attention", choice.cudnn ? "cudnn" : "own"},
                        {"version", choice.library.version},
                        {"sm", choice.library.sm},
                        {"workspace", choice.workspace_bytes},
                        {"reason", choice.reason}}
      .dump();
}

Choice choice_from_json(std::string_view text, std::string_view where) {
  Choice choice;
  io::reading_json(
      [&](const std::string& sentence) {
        return damaged_error(where, "expected a choice of attention, got: ", sentence, "; remove it to decide again");
      },
      [&] {
        const auto json = nlohmann::json::parse(text.begin(), text.end());
        const std::string by = json.at("attention").get<std::string>();
        if (by != "cudnn" && by != "own")
          throw damaged_error(where, "expected attention to be cudnn or own, got ", by, "; remove it to decide again");
        choice.cudnn = by == "cudnn";
        choice.library.version = json.at("version").get<int64_t>();
        choice.library.sm = json.at("sm").get<int>();
        choice.workspace_bytes = json.at("workspace").get<int64_t>();
        choice.reason = json.at("reason").get<std::string>();
      });
  return choice;
}

bool may_keep(const Choice& stored, const Library& library) { return !stored.cudnn || stored.library == library; }

}  // namespace ashlar::cudnn
