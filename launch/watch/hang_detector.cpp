#include "launch/watch/hang_detector.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"

namespace ashlar::watch {

namespace {

constexpr int64_t kAnswerMs = 1500;       // longest wait for the stacks of running ranks
constexpr int64_t kHopMs = 150;           // time per hop; a message advances two nodes of the ring per hop
constexpr int64_t kPassOnMs = 500;        // time for other nodes to receive this node's reports
constexpr int64_t kHurryMs = 12'000;      // how long polls_often returns true in a hang; all reports then have arrived
constexpr size_t kMostNamed = 8;          // maximum number of missing nodes named in a report
constexpr double kStallSeconds = 10;      // a longer stall is reported
constexpr int64_t kStallFreshMs = 3000;   // a stall counts as current for this long after a rank was last seen in it
constexpr uint64_t kFewBytes = 16 << 10;  // fewer bytes of I/O are background activity of a process, not progress

}  // namespace

void HangDetector::Last::here(int64_t ms) {
  if (ms <= at_ms) return;
  ++number;
  at_ms = ms;
}

void HangDetector::Last::receive(const EventAge& event_age, int64_t received_ms) {
  if (event_age.number <= number) return;
  number = event_age.number;
  at_ms = std::max(at_ms, received_ms - event_age.age_ms);
}

EventAge HangDetector::Last::event_age(int64_t now_ms) const {
  return {.number = number, .age_ms = number == 0 ? kNoStall : now_ms - at_ms};
}

HangDetector::HangDetector(const Args& args)
    : recorder_(args.recorder),
      pages_(args.pages),
      remote_(args.remote),
      nodes_(args.remote.ranks() == 0 ? std::span<const NodeRanks>() : args.nodes),
      errors_(args.errors),
      gather_ms_(args.gather_ms),
      began_ms_(machine_ms()) {}

void HangDetector::beat() {
  const uint64_t bytes = io_.bytes();
  if (bytes >= io_seen_ + kFewBytes) {
    io_seen_ = bytes;
    recorder_.tick();
  }
  recorder_.beat();
  // Polls often enough to find a stall before it counts as a hang.
  const auto often = static_cast<int64_t>(options_.after_seconds * 1e3 / 8);
  if (options_.after_seconds > 0) recorder_.stalled(files_.look(machine_ms(), std::clamp<int64_t>(often, 100, 1000)));
}

void HangDetector::held_up(int64_t now_ms) { held_up_ms_ = now_ms; }

void HangDetector::receive(std::span<const NodeInbox> inboxes, int64_t now_ms) {
  for (const NodeInbox& inbox : inboxes) {
    const int64_t received = look_at(inbox.received_ms);
    if (received == 0) continue;
    progress_.receive(inbox.status.progress, received);
    stall_.receive(inbox.status.stall, received);
    remote_longest_ms_ = std::max(remote_longest_ms_, inbox.status.longest_ms);
  }
  progress_.here(now_ms - watch::quiet_ms(pages_, now_ms));
  if (std::ranges::any_of(pages_, [&](const auto& page) { return stall_of(page, now_ms) != nullptr; }))
    stall_.here(now_ms);
}

void HangDetector::fill(NodeStatus& status, int64_t now_ms) const {
  status.progress = progress_.event_age(now_ms);
  status.stall = stall_.event_age(now_ms);
  status.longest_ms = longest_ms();
}

int64_t HangDetector::quiet_ms(int64_t now_ms) const {
  return now_ms - std::max({progress_.at_ms, began_ms_, held_up_ms_});
}

int64_t HangDetector::longest_ms() const { return std::max(hang_limit_ms(pages_, 0), remote_longest_ms_); }

int64_t HangDetector::hops_ms() const { return (options_.nodes - 1) * kHopMs / 2; }

bool HangDetector::polls_often(int64_t now_ms) const {
  return remote_.ranks() > 0 && hangs_since_ms_ && now_ms - *hangs_since_ms_ < kHurryMs + hops_ms();
}

void HangDetector::report_stalls(int64_t now_ms) {
  const auto longer = static_cast<int64_t>(std::min(options_.after_seconds, kStallSeconds) * 1e3);
  if (!stall_reported_ms_) {
    const std::string who = describe_stalls(pages_, now_ms, longer);
    if (who.empty()) return;
    stall_reported_ms_ = now_ms - longer;
    print(str_cat("ashlar: warning: a file system stalls: ", who,
                  "; the job waits for it for at most run.stall_after = ", options_.stall_seconds, " s\n"));
  } else if (describe_stalls(pages_, now_ms, 0).empty()) {
    print(str_cat("ashlar: the file system responds again, after ", (now_ms - *stall_reported_ms_) / 1000, " s\n"));
    stall_reported_ms_.reset();
  }
}

bool HangDetector::look(int64_t now_ms, bool leads) {
  answer();
  if (options_.after_seconds <= 0) return false;
  const int64_t quiet = quiet_ms(now_ms);
  if (leads) report_stalls(now_ms);
  const bool stalls = stall_.number > 0 && now_ms - stall_.at_ms < kStallFreshMs + hops_ms();
  const double after = stalls ? std::max(options_.after_seconds, options_.stall_seconds) : options_.after_seconds;
  if (quiet < longest_ms() + static_cast<int64_t>(after * 1e3) + hops_ms()) {
    if (reported_) print("ashlar: hang: the ranks make progress again\n");
    reported_ = false;
    hangs_since_ms_.reset();
    leave_ms_.reset();
    own_.clear();
    nodes_received_ = nodes_printed_ = 0;
    asked_ms_.reset();
    other_asked_ms_.reset();
    known_request_ = look_at(pages_.front().stacks_wanted);
    return false;
  }
  if (!hangs_since_ms_) hangs_since_ms_ = now_ms;
  if (!leads) return false;
  if (reported_) return options_.stop && may_leave(now_ms);
  if (!asked_ms_) {
    // On a busy machine two ranks may lead this node for a while. The rank that first requests stacks reports the hang.
    // If that rank does not report it within 3 * kAnswerMs, the other rank does.
    if (look_at(pages_.front().stacks_wanted) != known_request_) {
      if (!other_asked_ms_) other_asked_ms_ = now_ms;
      if (now_ms - *other_asked_ms_ < 3 * kAnswerMs) return false;
    }
    ask(now_ms);
  }
  const int64_t waited = now_ms - *asked_ms_;
  if (own_.empty()) {
    if (!all_answered() && waited < kAnswerMs) return false;
    look_at_own(now_ms);
    share(false, now_ms);
  }
  if (!all_received() && waited < gather_ms_ + hops_ms() / 2) return false;
  report(quiet, now_ms);
  reported_ = true;
  share(true, now_ms);
  return options_.stop && remote_.ranks() == 0;
}

void HangDetector::answer() {
  RankPage& page = recorder_.page();
  const uint32_t wanted = look_at(page.stacks_wanted);
  if (wanted == look_at(page.stacks_given)) return;
  const std::string text = describe_threads(sampler_);
  files_.interrupted();
  const size_t size = text.copy(page.stacks.data(), page.stacks.size() - 1);
  page.stacks[size] = '\0';
  publish(page.stacks_given, wanted);
}

void HangDetector::ask(int64_t now_ms) {
  asked_ms_ = now_ms;
  request_ = 0;
  for (const RankPage& page : pages_) request_ = std::max(request_, look_at(page.stacks_wanted));
  ++request_;
  for (RankPage& page : pages_) publish(page.stacks_wanted, request_);
  answer();
}

bool HangDetector::all_answered() const {
  return std::ranges::all_of(
      pages_, [&](const RankPage& page) { return !takes_part(page) || look_at(page.stacks_given) == request_; });
}

void HangDetector::look_at_own(int64_t now_ms) {
  for (const RankPage& page : pages_) {
    if (!takes_part(page)) continue;
    const FileStall* stall = stall_of(page, now_ms);
    RankSnapshot snapshot{.page = page,
                          .answers = look_at(page.stacks_given) == request_,
                          .threads = {},
                          .stall = stall == nullptr ? "" : describe_stall(*stall, now_ms)};
    const std::vector<ThreadSnapshot> threads = threads_of(page.pid);
    snapshot.state = threads.front().state;
    if (snapshot.answers) {
      snapshot.threads = page.stacks.data();
    } else {
      for (const ThreadSnapshot& thread : threads)
        snapshot.threads += str_cat(snapshot.threads.empty() ? "" : "\n", thread.name, " thread: ", describe(thread));
    }
    own_.push_back(std::move(snapshot));
  }
}

void HangDetector::share(bool printed, int64_t now_ms) {
  for (const RankPage& page : pages_) {
    if (remote_.ranks() == 0 || look_at(page.pid) == 0) continue;
    RankReport report{.version = std::max(now_ms, remote_.version(page.rank) + 1), .printed = printed, .page = page};
    for (const RankSnapshot& snapshot : own_) {
      if (&snapshot.page != &page) continue;
      report.state = snapshot.state;
      report.answers = snapshot.answers;
      snapshot.stall.copy(report.stall.data(), report.stall.size() - 1);
    }
    remote_.put(report, now_ms);
    if (printed) return;  // one report that has `printed` set is enough for a node
  }
}

// True if all ranks of a node have sent reports of this hang, not only of an earlier hang.
bool HangDetector::has_reports(const NodeRanks& node) const {
  return std::ranges::all_of(node.ranks, [&](int32_t rank) { return remote_.has(rank, progress_.at_ms); });
}

bool HangDetector::all_received() {
  while (nodes_received_ < nodes_.size() && has_reports(nodes_[nodes_received_])) ++nodes_received_;
  return nodes_received_ == nodes_.size();
}

bool HangDetector::all_printed() {
  const auto printed = [&](const NodeRanks& node) {
    return std::ranges::any_of(node.ranks, [&](int32_t rank) {
      const auto report = remote_.get(rank, progress_.at_ms);
      return report && report->printed;
    });
  };
  while (nodes_printed_ < nodes_.size() && printed(nodes_[nodes_printed_])) ++nodes_printed_;
  return nodes_printed_ == nodes_.size();
}

// True if this rank may exit. When one rank exits, mpirun kills all ranks. So each node first prints its own ranks, and
// then waits, for a limited time, until all other nodes have printed theirs.
bool HangDetector::may_leave(int64_t now_ms) {
  if (leave_ms_) return now_ms >= *leave_ms_;
  if (all_printed() || now_ms - *asked_ms_ >= gather_ms_ + hops_ms()) leave_ms_ = now_ms + kPassOnMs + hops_ms() / 8;
  return false;
}

// True if this node has the lowest rank of all nodes whose reports have arrived. It then prints the conclusion.
bool HangDetector::prints_conclusion() const {
  for (const NodeRanks& node : nodes_) {
    if (node.ranks.front() >= pages_.front().rank) return true;
    for (const int32_t rank : node.ranks) {
      const auto report = remote_.get(rank, progress_.at_ms);
      if (report && report->page.state == RankState::kRunning) return false;
    }
  }
  return true;
}

std::string HangDetector::missing_nodes() const {
  std::string text;
  size_t count = 0;
  for (const NodeRanks& node : nodes_) {
    std::vector<int32_t> missing;
    for (const int32_t rank : node.ranks)
      if (!remote_.has(rank, progress_.at_ms)) missing.push_back(rank);
    if (missing.empty() || ++count > kMostNamed) continue;
    text += str_cat(text.empty() ? "" : "; ", list_ranks(missing), " on ", node.host);
  }
  return count <= kMostNamed ? text : str_cat(text, "; and from ", count - kMostNamed, " more machines");
}

// Returns the lines that name the suspects among all ranks with known state.
std::string HangDetector::conclude() const {
  std::deque<RankReport> reports;
  std::vector<RankSnapshot> all = own_;
  for (int64_t rank = 0; rank < remote_.ranks(); ++rank) {
    const bool ours = std::ranges::any_of(pages_, [&](const auto& page) { return page.rank == rank; });
    auto report = ours ? std::nullopt : remote_.get(rank, progress_.at_ms);
    if (!report || report->page.state != RankState::kRunning) continue;
    const RankReport& there = reports.emplace_back(std::move(*report));
    all.push_back({.page = there.page,
                   .state = there.state,
                   .answers = there.answers,
                   .threads = {},
                   .stall = there.stall.data()});
  }
  std::string text;
  const std::vector<Suspect> suspects = find_suspects(all);
  for (const Suspect& suspect : suspects) text += str_cat("ashlar: hang: ", suspect.text, "\n");
  const std::string missing = missing_nodes();
  if (suspects.empty()) {
    text += str_cat("ashlar: hang: no rank ", missing.empty() ? "" : "with known state ",
                    "differs from the others: all wait for each other\n");
  }
  if (!missing.empty()) text += str_cat("ashlar: hang: no report from ", missing, ": their state is not compared\n");
  text += options_.stop
              ? "ashlar: hang: the job ends here: run the same command again to resume from the last checkpoint\n"
              : "ashlar: hang: the job continues (run.hang_action = \"report\")\n";
  return text;
}

void HangDetector::report(int64_t quiet, int64_t now_ms) {
  const std::string limit = options_.starting
                                ? absl::StrFormat("the limit before the first step is %g s", options_.after_seconds)
                                : absl::StrFormat("run.hang_after = %g s, longest step %.1f s", options_.after_seconds,
                                                  static_cast<double>(longest_ms()) / 1e3);
  std::string text = absl::StrFormat("ashlar: hang: no rank has made progress for %d s (%s)\n", quiet / 1000, limit);
  for (const RankSnapshot& rank : own_) text += describe_hung(rank, now_ms, "ashlar: ");
  if (prints_conclusion()) text += conclude();
  print(text);
}

void HangDetector::print(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    errors_.add(std::string(lines.substr(0, end)), LineKind::kWarning);
    lines.remove_prefix(end);
  }
}

}  // namespace ashlar::watch
