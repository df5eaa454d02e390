#include "launch/watch/watchdog.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <future>
#include <string>

#include "core/base/error.h"
#include "core/base/fixed_text.h"

namespace ashlar::watch {

namespace {

constexpr int64_t kStaleMs = 1000;  // a rank without a heartbeat for this long does not lead its node

// True if a rank in this state reports lost ranks, or has already printed why it ends.
bool reports(PeerState state) {
  return state == PeerState::kAlive || state == PeerState::kLeaving || state == PeerState::kGone;
}
bool calls_to_leave(PeerState state) { return state == PeerState::kGone || state == PeerState::kLost; }

}  // namespace

Verdict judge(std::span<const PeerState> ranks, std::span<const NodeView> before, size_t self) {
  Verdict verdict;
  size_t lowest = self;  // lowest rank of this node that reports losses
  std::optional<size_t> lost;
  for (size_t r = ranks.size(); r-- > 0;) {
    verdict.leave = verdict.leave || calls_to_leave(ranks[r]);
    if (reports(ranks[r])) lowest = r;
    if (ranks[r] != PeerState::kLost) continue;
    lost = r;
    ++verdict.lost;
  }
  std::optional<size_t> node;
  bool nearer_lost = true;  // all nodes between node n and this one are lost
  for (size_t n = 0; n < before.size(); ++n) {
    verdict.leave = verdict.leave || calls_to_leave(before[n].state);
    const bool silent = before[n].state == PeerState::kLost;
    if (silent && nearer_lost && !node) node = n;
    if (silent && !lost) verdict.lost += before[n].ranks;
    nearer_lost = nearer_lost && silent;
  }
  const bool remote = std::ranges::any_of(before, [](const NodeView& n) { return n.state == PeerState::kLost; });
  if (!lost && !remote) return verdict;
  const bool ours = lost || node;
  if (ours && lowest == self) {
    if (lost) verdict.report = lost;
    if (!lost) verdict.report_node = node;
    return verdict;
  }
  verdict.wait = !ours || ranks[lowest] == PeerState::kAlive;
  return verdict;
}

Watchdog::Watchdog(const Args& args)
    : args_(args), pages_(args.pages.pages()), peers_(pages_.size()), looked_(Clock::now()) {
  self_ = static_cast<size_t>(&args_.recorder.page() - pages_.data());
  ASHLAR_CHECK(self_ < pages_.size(), "expected the recorder's page among the pages of this node's ranks");
  neighbours_.resize(NodePages::kInboxes);
  hang_options_ = args_.hang;
  // The thread must not receive signals meant for the main thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    failing_ = std::uncaught_exceptions() > 0;
  }
  changed_.notify_all();
  thread_.join();
  errors_.finish();
  for (const Peer& peer : peers_)
    if (peer.stat >= 0) close(peer.stat);
}

void Watchdog::watch_hangs(const HangOptions& options) {
  const std::lock_guard lock(mutex_);
  hang_options_ = options;
  hang_options_.nodes = args_.hang.nodes;
}

void Watchdog::before_end(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  before_end_ = std::move(action);
}

void Watchdog::find_lost() { std::this_thread::sleep_for(args_.times.silence * 3 / 2); }

void Watchdog::run() {
  pthread_setname_np(pthread_self(), "ashlar-watch");
  hang_ = std::make_unique<HangDetector>(HangDetector::Args{.recorder = args_.recorder,
                                                            .pages = pages_,
                                                            .remote = args_.pages.remote(),
                                                            .nodes = args_.nodes,
                                                            .errors = errors_,
                                                            .gather_ms = args_.times.gather.count()});
  std::unique_lock lock(mutex_);
  do {
    hang_->set(hang_options_);
    lock.unlock();
    look();
    lock.lock();
  } while (!changed_.wait_for(lock, until_next(), [this] { return stop_; }));
  lock.unlock();
  // The recorder still marks this rank as running, so status() still reports the node as running. If no other rank of
  // this node is running, the last heartbeat must instead say that the node has finished or failed.
  if (args_.ring == nullptr || !leads(machine_ms())) return;
  NodeStatus last = status(machine_ms());
  const bool others = std::ranges::any_of(pages_, [&](const RankPage& page) {
    return &page != &pages_[self_] && look_at(page.state) == RankState::kRunning;
  });
  if (!others && last.state == RankState::kRunning) last.state = failing_ ? RankState::kFailed : RankState::kFinished;
  args_.ring->send_last(last);
}

std::chrono::milliseconds Watchdog::until_next() const {
  const bool polls_often = args_.ring != nullptr && (hang_->polls_often(machine_ms()) || args_.ring->busy());
  return polls_often ? std::min(args_.times.hurry, args_.times.beat) : args_.times.beat;
}

bool Watchdog::leads(int64_t now_ms) const {
  for (size_t r = 0; r < self_; ++r) {
    const RankPage& page = pages_[r];
    if (takes_part(page) && !peers_[r].dead && now_ms - look_at(page.heartbeat_ms) < kStaleMs) return false;
  }
  return true;
}

NodeStatus Watchdog::status(int64_t now_ms) const {
  NodeStatus status{.node = args_.node, .ranks = static_cast<int32_t>(pages_.size()), .all_ranks = pages_[self_].ranks};
  const RankPage* lowest = nullptr;
  bool failed = false;
  for (const RankPage& page : pages_) {
    const RankState state = look_at(page.state);
    failed = failed || state == RankState::kFailed || state == RankState::kCrashed;
    if (lowest == nullptr && look_at(page.pid) != 0 && state == RankState::kRunning) lowest = &page;
  }
  status.state = failed ? RankState::kFailed : lowest == nullptr ? RankState::kFinished : RankState::kRunning;
  if (lowest == nullptr) lowest = &pages_[self_];
  status.rank = lowest->rank;
  status.step = look_at(lowest->step);
  status.host = lowest->host;
  const std::string_view operation =
      last_operation(*lowest, std::span(status.operation).first(status.operation.size() - 1));
  status.operation[operation.size()] = '\0';
  hang_->fill(status, now_ms);
  return status;
}

void Watchdog::look() {
  const Clock::time_point now = Clock::now();
  const int64_t now_ms = machine_ms();
  // If this rank was itself stopped or delayed, it has missed heartbeats of the others.
  const bool held_up = now - looked_ > args_.times.beat + args_.times.silence / 5;
  if (held_up) {
    for (Neighbour& neighbour : neighbours_) neighbour.missed_ms = now_ms;
    hang_->held_up(now_ms);
  }
  looked_ = now;
  hang_->beat();
  hang_->receive(args_.pages.inboxes(), now_ms);
  const bool first = leads(now_ms);
  if (args_.ring != nullptr) {
    args_.ring->poll(first, status(now_ms));
    for (const std::string& trouble : {first ? args_.ring->take_trouble() : "", args_.ring->take_mismatch()})
      if (!trouble.empty()) errors_.add(str_cat("ashlar: warning: ", trouble, "\n"), LineKind::kWarning);
  }
  const auto request = args_.signals.pending();
  const bool stopping = request && request->code == ExitCode::kSigterm;
  std::vector<PeerState> views;
  for (size_t r = 0; r < peers_.size(); ++r) views.push_back(r == self_ ? PeerState::kAlive : view(r, now));
  std::vector<NodeView> nodes;
  for (size_t n = 0; args_.ring != nullptr && n < neighbours_.size(); ++n) nodes.push_back(view_node(n, now, stopping));
  const Verdict verdict = judge(views, nodes, self_);
  if (verdict.leave) {
    if (left_ == Clock::time_point()) left_ = now;
    if (!verdict.wait || now - left_ > args_.times.error_wait) leave(verdict);
    return;
  }
  // A rank that is leaving has already reported the reason, e.g. a hang, so the next leader must not report it again.
  if (std::ranges::find(views, PeerState::kLeaving) != views.end()) return;
  if (hang_->look(now_ms, first)) end();
}

PeerState Watchdog::left(Clock::time_point& since, Clock::time_point now) const {
  if (since == Clock::time_point()) since = now;
  return now - since > args_.times.error_wait ? PeerState::kGone : PeerState::kLeaving;
}

bool Watchdog::has_died(size_t peer) {
  Peer& p = peers_[peer];
  const size_t behind = (peer + peers_.size() - self_) % peers_.size();
  const bool asked = (behind & (behind - 1)) == 0;  // this rank checks peers at distances that are powers of two
  RankPage& page = pages_[peer];
  p.dead = p.dead || look_at(page.found_dead) != 0;
  if (p.dead || !asked) return p.dead;
  if (!p.opened) {
    p.opened = true;
    p.stat = open(str_cat("/proc/", page.pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  }
  // An open file of /proc stays bound to its process, even if the process id is reused.
  const ProcessStat stat = parse_process_stat(text_in(p.stat));
  p.dead = stat.started != page.started || stat.state == 'Z' || stat.state == 'X';
  // The rank that must report the loss possibly does not check this process itself, so the result is published.
  if (p.dead) publish(page.found_dead, 1u);
  return p.dead;
}

PeerState Watchdog::view(size_t peer, Clock::time_point now) {
  const RankPage& page = pages_[peer];
  if (look_at(page.pid) == 0) return PeerState::kUnknown;
  // The state is read again after the check whether the process has died, since the process may have set its state just
  // before it ended.
  const bool dead = look_at(page.state) == RankState::kRunning && has_died(peer);
  switch (look_at(page.state)) {
    case RankState::kFinished: return PeerState::kFinished;
    case RankState::kCrashed: return PeerState::kGone;
    case RankState::kFailed: return left(peers_[peer].failed, now);
    case RankState::kRunning: break;
  }
  return dead ? PeerState::kLost : PeerState::kAlive;
}

NodeView Watchdog::view_node(size_t index, Clock::time_point now, bool stopping) {
  const NodeInbox& inbox = args_.pages.inboxes()[index];
  const int64_t received = look_at(inbox.received_ms);
  if (received == 0) return {};
  const int64_t silent = machine_ms() - std::max(received, neighbours_[index].missed_ms);
  const int64_t limit = (stopping ? args_.times.short_silence : args_.times.silence).count();
  switch (inbox.status.state) {
    case RankState::kFinished: return {PeerState::kFinished, inbox.status.ranks};
    case RankState::kFailed:
    case RankState::kCrashed: return {left(neighbours_[index].failed, now), inbox.status.ranks};
    case RankState::kRunning: break;
  }
  return {silent > limit ? PeerState::kLost : PeerState::kAlive, inbox.status.ranks};
}

void Watchdog::leave(const Verdict& verdict) {
  std::array<char, 512> memory;
  std::array<char, 800> line;
  FixedText text(line);
  if (verdict.report) {
    // Until now this rank checked only a few processes. Now it checks all of them once.
    int64_t lost = 0;
    for (size_t r = 0; r < pages_.size(); ++r)
      lost +=
          pages_[r].state == RankState::kRunning && r != self_ && (peers_[r].dead || !process_lives(pages_[r])) ? 1 : 0;
    text.add("ashlar: ").add(describe(pages_[*verdict.report], "died", memory));
    if (lost > 1) text.add("; ").add(lost - 1).add(" more lost");
  } else if (verdict.report_node) {
    const NodeStatus& status = args_.pages.inboxes()[*verdict.report_node].status;
    text.add("ashlar: [rank ").add(status.rank).add(" of ").add(status.all_ranks).add(" on ").add(status.host.data());
    text.add("] fell silent (its machine or the network failed)");
    if (status.step >= 0) text.add(" at step ").add(status.step);
    if (status.step < 0 && status.step != kNoSteps) text.add(" before the first step");
    text.add(", last operation ").add(status.operation.data());
    if (verdict.lost > 1) text.add("; ").add(verdict.lost - 1).add(" more lost");
  } else {
    end();
  }
  text.add("; the job ends here: ");
  text.add(args_.hang.continues ? "run the same command again to resume from the last checkpoint\n"
                                : "run the command again\n");
  errors_.add(std::string(text.text()), LineKind::kWarning);
  end();
}

void Watchdog::end() {
  errors_.finish();  // first, because once this rank is marked as failed, the launcher may kill it
  args_.recorder.leave(RankState::kFailed);
  if (args_.ring != nullptr) args_.ring->send_last(status(machine_ms()));
  std::this_thread::sleep_for(args_.times.linger);
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    action = before_end_;
  }
  if (action) {
    // Runs on a separate thread, so that a call that never returns does not block the exit.
    const auto done = std::make_shared<std::promise<void>>();
    std::thread([action, done] {
      action();
      done->set_value();
    }).detach();
    done->get_future().wait_for(std::chrono::seconds(2));
  }
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

}  // namespace ashlar::watch
