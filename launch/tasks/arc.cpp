#include "launch/tasks/labelled_choices.h"
#include "launch/tasks/task.h"

// Clark et al. 2018, "Think you have Solved Question Answering? Try ARC" (arXiv:1803.05457).
namespace ashlar::tasks {

namespace {

const Source kArcSource = {.folder = "arc",
                           .licence = "CC BY-SA 4.0",
                           .addresses = {"https://ai2-public-datasets.s3.amazonaws.com/arc/ARC-V1-Feb2018.zip"}};
constexpr const char* kEasyFile = "arc/ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Test.jsonl";
constexpr const char* kChallengeFile = "arc/ARC-V1-Feb2018-2/ARC-Challenge/ARC-Challenge-Test.jsonl";

Document arc_document(const Record& r) {
  return labelled_choices(r, "Question: " + text_at(r, {"question", "stem"}) + "\nAnswer:");
}

}  // namespace

Task arc_easy() {
  return {.name = "arc_easy",
          .metric = Metric::kChoiceNorm,
          .records = 2376,
          .source = &kArcSource,
          .files = {kEasyFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kEasyFile); },
          .document = arc_document};
}

Task arc_challenge() {
  return {.name = "arc_challenge",
          .metric = Metric::kChoiceNorm,
          .records = 1172,
          .source = &kArcSource,
          .files = {kChallengeFile},
          .read = [](const std::filesystem::path& data) { return read_json_lines(data / kChallengeFile); },
          .document = arc_document};
}

}  // namespace ashlar::tasks
