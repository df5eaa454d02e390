#include "launch/watch/rank_page.h"

#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>

#include "core/base/error.h"
#include "launch/watch/process.h"

namespace ashlar::watch {

uint64_t this_machine() {
  std::string id = boot_id() + pid_space();
  struct stat memory {};
  if (stat("/dev/shm", &memory) == 0) id += std::to_string(memory.st_dev);  // some containers differ only in this
  return std::hash<std::string>()(id);
}

uint64_t new_job() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

int64_t machine_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::kStarting: return "starting";
    case Phase::kLoading: return "loading a checkpoint";
    case Phase::kReadingData: return "reading data";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kBackwardWeight: return "backward of weights";
    case Phase::kTransfer: return "transfer between stages";
    case Phase::kOptimizer: return "optimizer";
    case Phase::kReporting: return "writing metrics";
    case Phase::kStatistics: return "statistics";
    case Phase::kValidating: return "validating";
    case Phase::kSaving: return "saving";
    case Phase::kGenerating: return "generating";
    case Phase::kEnding: return "ending";
  }
  return "?";
}

bool process_lives(const RankPage& page) {
  const ProcessStat now = process_stat(page.pid);
  return now.started == page.started && now.state != 'Z' && now.state != 'X';
}

std::string_view last_operation(const RankPage& page, std::span<char> memory) {
  const uint64_t count = look_at(page.operations);
  if (count == 0) return comm::describe({}, "", memory);
  const OperationRecord& last = page.recent[(count - 1) % RankPage::kRecords];
  return comm::describe(last.info, last.communicator.data(), memory);
}

FixedText& add_action(FixedText& text, const RankPage& page) {
  const Phase phase = look_at(page.phase);
  const int32_t number = look_at(page.micro_batch);
  text.add(name_of(phase));
  if (number < 0) return text;
  return text
      .add(phase == Phase::kValidating   ? ", batch "
           : phase == Phase::kGenerating ? ", token "
                                         : " of micro-batch ")
      .add(number);
}

std::string_view describe(const RankPage& page, std::string_view what, std::span<char> memory) {
  FixedText text(memory);
  text.add("[rank ").add(page.rank).add(" of ").add(page.ranks).add(" on ").add(page.host.data()).add("] ").add(what);
  if (page.step == kNoSteps) {
    if (look_at(page.phase) != Phase::kStarting) add_action(text.add(" while "), page);
  } else if (page.step < 0) {
    text.add(" before the first step");
  } else {
    text.add(" at step ").add(page.step);
  }
  char operation[192];
  return text.add(", last operation ").add(last_operation(page, operation)).text();
}

}  // namespace ashlar::watch
