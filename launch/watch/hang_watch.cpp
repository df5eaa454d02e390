#include "launch/watch/hang_watch.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "launch/watch/hang.h"

namespace ashlar::watch {

namespace {

constexpr int64_t kAnswerMs = 1500;       // for the stacks of ranks that run
constexpr int64_t kHopMs = 150;           // news of progress go round in steps of at most two nodes
constexpr double kStallSeconds = 10;      // a file system that stalls for longer is told
constexpr int64_t kStallFreshMs = 3000;   // what has got on since then may take a moment to be seen
constexpr uint64_t kFewBytes = 16 << 10;  // what a process reads and writes by itself

void write_whole(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

bool takes_part(const RankPage& page) { return look_at(page.pid) != 0 && look_at(page.state) == RankState::kRunning; }

}  // namespace

HangWatch::HangWatch(RankBoard& board, std::span<RankPage> pages)
    : board_(board), pages_(pages), began_ms_(machine_ms()) {}

void HangWatch::beat() {
  const uint64_t bytes = io_.bytes();
  if (bytes >= io_seen_ + kFewBytes) {
    io_seen_ = bytes;
    board_.tick();
  }
  board_.beat();
  // Known before it could be taken for a hang.
  const auto often = static_cast<int64_t>(options_.after_seconds * 1e3 / 8);
  if (options_.after_seconds > 0) board_.stalled(files_.look(machine_ms(), std::clamp<int64_t>(often, 100, 1000)));
}

void HangWatch::held_up(int64_t now_ms) { held_up_ms_ = now_ms; }

int64_t HangWatch::quiet_ms(std::span<const NodeInbox> inboxes, int64_t now_ms) const {
  int64_t quiet = std::min(watch::quiet_ms(pages_, now_ms), now_ms - std::max(began_ms_, held_up_ms_));
  for (const NodeInbox& inbox : inboxes) {
    const int64_t received = look_at(inbox.received_ms);
    if (received != 0) quiet = std::min(quiet, inbox.news.quiet_ms + now_ms - received);
  }
  return quiet;
}

int64_t HangWatch::stall_age_ms(std::span<const NodeInbox> inboxes, int64_t now_ms) const {
  const bool here =
      std::any_of(pages_.begin(), pages_.end(), [&](const auto& page) { return stall_of(page, now_ms) != nullptr; });
  int64_t age = here ? 0 : kNoStall;
  for (const NodeInbox& inbox : inboxes) {
    const int64_t received = look_at(inbox.received_ms);
    if (received != 0) age = std::min(age, inbox.news.stall_age_ms + now_ms - received);
  }
  return age;
}

void HangWatch::tell_stalls(int64_t now_ms) {
  const auto longer = static_cast<int64_t>(std::min(options_.after_seconds, kStallSeconds) * 1e3);
  if (!stall_told_ms_) {
    const std::string who = describe_stalls(pages_, now_ms, longer);
    if (who.empty()) return;
    stall_told_ms_ = now_ms - longer;
    write_whole(str_cat("ashlar: warning: a file system stalls: ", who,
                        "; who needs it waits, for run.stall_after = ", options_.stall_seconds, " s at most\n"));
  } else if (describe_stalls(pages_, now_ms, 0).empty()) {
    write_whole(str_cat("ashlar: the file system answers again, after ", (now_ms - *stall_told_ms_) / 1000, " s\n"));
    stall_told_ms_.reset();
  }
}

bool HangWatch::look(std::span<const NodeInbox> inboxes, int64_t now_ms, bool leads) {
  answer();
  if (options_.after_seconds <= 0) return false;
  const int64_t quiet = quiet_ms(inboxes, now_ms);
  if (leads) tell_stalls(now_ms);
  const int64_t hops = (options_.nodes - 1) * kHopMs / 2;
  const bool stalls = stall_age_ms(inboxes, now_ms) < kStallFreshMs + hops;
  const double after = stalls ? std::max(options_.after_seconds, options_.stall_seconds) : options_.after_seconds;
  const int64_t limit = hang_limit_ms(pages_, after) + hops;
  if (quiet < limit) {
    if (reported_) write_whole("ashlar: hang: the ranks get on again\n");
    reported_ = false;
    asked_ms_.reset();
    other_asked_ms_.reset();
    known_request_ = look_at(pages_.front().stacks_wanted);
    return false;
  }
  if (!leads || reported_) return false;
  if (!asked_ms_) {
    // On a busy machine two ranks may lead for a while: the one that asked first reports, unless it never does.
    if (look_at(pages_.front().stacks_wanted) != known_request_) {
      if (!other_asked_ms_) other_asked_ms_ = now_ms;
      if (now_ms - *other_asked_ms_ < 3 * kAnswerMs) return false;
    }
    ask(now_ms);
  }
  if (!all_answered() && now_ms - *asked_ms_ < kAnswerMs) return false;
  report(quiet, now_ms);
  reported_ = true;
  return options_.stop;
}

void HangWatch::answer() {
  RankPage& page = board_.page();
  const uint32_t wanted = look_at(page.stacks_wanted);
  if (wanted == look_at(page.stacks_given)) return;
  const std::string text = describe_threads(sampler_);
  const size_t size = text.copy(page.stacks.data(), page.stacks.size() - 1);
  page.stacks[size] = '\0';
  publish(page.stacks_given, wanted);
}

void HangWatch::ask(int64_t now_ms) {
  asked_ms_ = now_ms;
  request_ = 0;
  for (const RankPage& page : pages_) request_ = std::max(request_, look_at(page.stacks_wanted));
  ++request_;
  for (RankPage& page : pages_) publish(page.stacks_wanted, request_);
  answer();
}

bool HangWatch::all_answered() const {
  return std::all_of(pages_.begin(), pages_.end(),
                     [&](const RankPage& page) { return !takes_part(page) || look_at(page.stacks_given) == request_; });
}

void HangWatch::report(int64_t quiet, int64_t now_ms) {
  std::vector<RankSight> ranks;
  for (const RankPage& page : pages_) {
    if (!takes_part(page)) continue;
    const FileStall* stall = stall_of(page, now_ms);
    RankSight sight{.page = page,
                    .answers = look_at(page.stacks_given) == request_,
                    .threads = {},
                    .stall = stall == nullptr ? "" : describe_stall(*stall, now_ms)};
    const std::vector<ThreadSight> threads = threads_of(page.pid);
    sight.state = threads.front().state;
    if (sight.answers) {
      sight.threads = page.stacks.data();
    } else {
      for (const ThreadSight& thread : threads)
        sight.threads += str_cat(sight.threads.empty() ? "" : "\n", thread.name, " thread: ", describe(thread));
    }
    ranks.push_back(std::move(sight));
  }
  std::string text = absl::StrFormat(
      "ashlar: hang: no rank has got anything done for %d s (run.hang_after = %g s, longest step %.1f s)\n",
      quiet / 1000, options_.after_seconds, static_cast<double>(hang_limit_ms(pages_, 0)) / 1e3);
  for (const RankSight& rank : ranks) text += describe_hung(rank, now_ms, "ashlar: ");
  const std::vector<Suspect> suspects = find_suspects(ranks);
  for (const Suspect& suspect : suspects) text += str_cat("ashlar: hang: ", suspect.text, "\n");
  if (suspects.empty()) {
    text += str_cat("ashlar: hang: ", options_.nodes == 1 ? "no rank stands out" : "no rank of this machine stands out",
                    ": all wait for each other\n");
  }
  if (pages_.front().rank == 0) {
    text += options_.stop ? "ashlar: hang: the job ends here: the same command continues from the last checkpoint\n"
                          : "ashlar: hang: the job goes on (run.hang_action = \"report\")\n";
  }
  write_whole(text);
}

}  // namespace ashlar::watch
