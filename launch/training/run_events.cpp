#include "launch/training/run_events.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar::training {

namespace {

std::string counted(int64_t n, const char* one, const char* many) { return str_cat(n, " ", n == 1 ? one : many); }
/// `many` ends with an s.
std::string counted(int64_t n, std::string_view many) {
  return str_cat(n, " ", n == 1 ? many.substr(0, many.size() - 1) : many);
}

std::string named(const std::filesystem::path& path) { return printable(path.string()); }

}  // namespace

std::string to_line(const EntriesHeldBack& e) {
  return str_cat(named(e.path), " cannot be written: ", e.reason, "; its ", e.entries,
                 " are held in memory and written later; free space");
}

std::string to_line(const EntriesCaughtUp& e) {
  return str_cat(named(e.path), " is written again: ", counted(e.count, e.entries), " held back in memory");
}

std::string to_line(const EntriesLost& e) {
  return str_cat(named(e.path), " has lost ", counted(e.count, e.entries), ", which could not be written: ", e.reason);
}

std::string to_line(const StartsOver& e) {
  return str_cat("no checkpoint was committed in ", named(e.run_dir), ": the run starts over at step 0, and ",
                 counted(e.rows, "earlier row goes", "earlier rows go"), " to metrics.cut.jsonl");
}

std::string to_line(const NewestCheckpointMissed& e) {
  return str_cat(named(e.run_dir), " had a checkpoint of step ", e.committed_step,
                 ", which is missing or damaged; the run continues from step ", e.step,
                 ", and the rows of later steps go to metrics.cut.jsonl");
}

std::string to_line(const OwnerWatched& e) {
  return str_cat(named(e.run_dir), " is locked by ", e.owner, "; this machine cannot tell whether that process still ",
                 "runs; watching for ", absl::StrFormat("%g", e.seconds), " s whether it writes to the directory");
}

std::string to_line(const OwnerReplaced& e) {
  return str_cat(e.owner, " has written nothing; this run takes over ", named(e.run_dir));
}

std::string to_line(const FormerAwaited& e) {
  return str_cat(named(e.run_dir), " is still locked by a rank of the previous attempt (", e.owner,
                 "); waiting at most ", absl::StrFormat("%g", e.seconds), " s");
}

std::string to_line(const UncountedSource& e) {
  return str_cat(printable(e.path), " has no token that the loss counts in the ", e.sequences,
                 " sequences of its validation part, so it is not part of val_loss");
}

std::string to_line(const ScheduleAtNewSteps& e) {
  std::string text = absl::StrFormat("the %s schedule over %d steps: ", e.kind, e.steps);
  if (e.decay_end > 0 && e.decay_end < e.steps) {
    text += absl::StrFormat(
        "its decay ends at step %d, and every later step has lr %.2e; schedule.decay_steps = %d "
        "would end it at the last step; ",
        e.decay_end, e.lr_last, e.steps - e.decay_begin);
  } else if (e.decay_end > e.steps) {
    text += absl::StrFormat(
        "its decay would end at step %d, so that the last step has lr %.2e; schedule.decay_steps = %d "
        "would end it at the last step; ",
        e.decay_end, e.lr_last, std::max<int64_t>(1, e.steps - e.decay_begin));
  } else if (e.decay_end > 0) {
    text += absl::StrFormat("its decay goes from step %d to the last; ", e.decay_begin);
  }
  return text + absl::StrFormat("step %d had lr %.2e, step %d has %.2e", e.step, e.lr_before, e.step + 1, e.lr_next);
}

std::string to_line(const ThreadsWait& e) {
  const int half = std::max(1, e.threads / 2);
  return absl::StrFormat(
      "the %d threads of rank %d waited for each other in %.0f%% of %d steps: other programs use these cores, or the "
      "work is too small for so many threads; try run.threads=%d (`ashlar bench step CONFIG --compare "
      "run.threads=%d,%d` "
      "measures both)",
      e.threads, e.rank, 100 * e.share, e.steps, half, half, e.threads);
}

std::string to_line(const SlowRanksNotJudged& e) {
  return e.by_devices
             ? "slow ranks are not detected: the devices are asynchronous, so the hosts cannot measure their times"
             : "slow ranks are not detected: on a machine of this run the ranks have more threads than "
               "cores, so they are slow in turns; use fewer ranks or a lower run.threads";
}

std::string to_line(const RankSlow& e) {
  return str_cat(
      absl::StrFormat("rank %d on ", e.rank), printable(e.host),
      absl::StrFormat(" is slow: %.1f ms of its own work per step without waits, compared with %.1f %s, over %d "
                      "steps up to step %d; all ranks wait for it: look at its load, clock and temperature, or "
                      "exclude that machine",
                      e.ms, e.usual_ms, e.lone ? "in its first 50 steps" : "of the ranks of its stage", e.steps,
                      e.step));
}

std::string to_line(const RankSlowOver& e) {
  return str_cat(absl::StrFormat("rank %d on ", e.rank), printable(e.host),
                 absl::StrFormat(" is no longer slow at step %d: %.1f ms of its own work per step, compared with %.1f",
                                 e.step, e.ms, e.usual_ms));
}

std::string to_line(const ExpertsIdle& e) {
  constexpr size_t kMost = 12;  // experts that the line names
  std::string names;
  int64_t layer = -1;
  for (size_t i = 0; i < std::min(e.experts.size(), kMost); ++i) {
    const ExpertsIdle::Expert& x = e.experts[i];
    names +=
        x.layer == layer ? str_cat(", ", x.expert) : str_cat(i == 0 ? "" : "; ", "layer ", x.layer, ": ", x.expert);
    layer = x.layer;
  }
  if (e.experts.size() > kMost) names += str_cat(" and ", e.experts.size() - kMost, " more");
  return str_cat(e.experts.size(), e.experts.size() == 1 ? " expert" : " experts", " got no token in ", e.steps,
                 " steps up to step ", e.step, " (of ", e.of, " in each layer; ", names, "): ", e.remedy,
                 ", or lower optimizer.lr");
}

std::string to_line(const ExpertCrowded& e) {
  return absl::StrFormat(
      "expert %d of layer %d got %.0f%% of the tokens of step %d, compared with %.1f%% at balance, and as much in the "
      "%d steps before: %s, or lower optimizer.lr",
      e.expert, e.layer, 100 * e.share, e.step, 100 * e.balanced, e.steps - 1, e.remedy);
}

std::string to_line(const WarningEvent& event) {
  return std::visit([](const auto& e) { return to_line(e); }, event);
}

bool is_note(const WarningEvent& event) {
  return !std::holds_alternative<RankSlow>(event) && !std::holds_alternative<ThreadsWait>(event) &&
         !std::holds_alternative<ExpertsIdle>(event) && !std::holds_alternative<ExpertCrowded>(event);
}

}  // namespace ashlar::training
