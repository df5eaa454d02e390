#include "launch/training/peer_watch.h"

#include <unistd.h>

#include <csignal>

#include "core/base/error.h"
#include "core/base/fixed_text.h"

namespace ashlar::training {

namespace {

// A rank that would have reported a loss, or has.
bool reports(PeerState state) {
  return state == PeerState::kAlive || state == PeerState::kLeaving || state == PeerState::kGone;
}

}  // namespace

Verdict judge(std::span<const PeerView> ranks, int64_t self) {
  Verdict verdict;
  int64_t first_lost = -1;
  for (int64_t r = 0; r < std::ssize(ranks); ++r) {
    const PeerState state = ranks[static_cast<size_t>(r)].state;
    verdict.leave = verdict.leave || state == PeerState::kGone || state == PeerState::kLost;
    if (state == PeerState::kLost && verdict.lost++ == 0) first_lost = r;
  }
  if (first_lost < 0) return verdict;
  int64_t reporter = -1, neighbour = -1;
  for (int64_t r = std::ssize(ranks) - 1; r >= 0; --r) {
    const PeerView& peer = ranks[static_cast<size_t>(r)];
    if (!reports(peer.state)) continue;
    reporter = r;
    if (peer.machine == ranks[static_cast<size_t>(first_lost)].machine) neighbour = r;
  }
  if (neighbour >= 0) reporter = neighbour;
  if (reporter == self) verdict.report = first_lost;
  verdict.wait = reporter != self && ranks[static_cast<size_t>(reporter)].state == PeerState::kAlive;
  return verdict;
}

PeerWatch::PeerWatch(RankBoard& board, const SignalWatch& signals, const WatchTimes& times)
    : board_(board),
      signals_(signals),
      times_(times),
      peers_(static_cast<size_t>(board.page().ranks)),
      began_(Clock::now()),
      looked_(began_) {
  // The thread takes no signal away from the main one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PeerWatch::find_lost() { std::this_thread::sleep_for(times_.silence * 3 / 2); }

void PeerWatch::run() {
  std::unique_lock lock(mutex_);
  do {
    lock.unlock();
    board_.beat();
    look();
    lock.lock();
  } while (!changed_.wait_for(lock, times_.beat, [this] { return stop_; }));
}

void PeerWatch::look() {
  const Clock::time_point now = Clock::now();
  // A rank that was itself stopped, or held up by the file system, has missed the others' beats.
  if (now - looked_ > times_.beat + times_.silence / 5) {
    for (Peer& peer : peers_) peer.changed = now;
  }
  looked_ = now;
  if (far_ && now - flushed_ >= 2 * times_.beat) {
    board_.flush();
    flushed_ = now;
  }
  const auto request = signals_.pending();
  const bool stopping = request && request->code == ExitCode::kSigterm;
  const int64_t self = board_.page().rank;
  std::vector<PeerView> views;
  for (int64_t rank = 0; rank < std::ssize(peers_); ++rank) {
    views.push_back(rank == self ? PeerView{PeerState::kAlive, board_.page().machine} : view(rank, now, stopping));
  }
  const Verdict verdict = judge(views, self);
  if (!verdict.leave) return;
  if (left_ == Clock::time_point()) left_ = now;
  if (!verdict.wait || now - left_ > times_.farewell) leave(verdict);
}

PeerView PeerWatch::view(int64_t rank, Clock::time_point now, bool stopping) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const auto read = [&] {
    const std::optional<RankPage> page = read_rank_page(board_.run_dir(), rank, board_.page().job);
    peer.read = now;
    if (!page) return;
    if (!peer.page || page->heartbeat_ms != peer.page->heartbeat_ms) {
      peer.beats = peer.page.has_value();
      peer.changed = now;
    }
    peer.page = page;
  };
  const auto near = [&] { return peer.page->machine == board_.page().machine; };
  // Other machines' files come over a network: less often, while there is time and once they are known to beat.
  const bool young = !peer.beats && now - began_ < times_.silence;
  const auto pause = !peer.page || near() || stopping || young ? std::chrono::milliseconds(0) : times_.silence / 5;
  if (now - peer.read >= pause) read();
  if (!peer.page) return {};

  bool lost = false;
  if (!near()) {
    far_ = true;
    lost = peer.beats && now - peer.changed > (stopping ? times_.short_silence : times_.silence);
  } else if (!process_lives(*peer.page)) {
    lost = true;
    read();  // unless its last word says otherwise
  }
  const auto seen = [&](PeerState state) { return PeerView{state, peer.page->machine}; };
  switch (peer.page->state) {
    case RankState::kFinished: return seen(PeerState::kFinished);
    case RankState::kCrashed: return seen(PeerState::kGone);
    case RankState::kFailed:
      if (peer.failed == Clock::time_point()) peer.failed = now;
      return seen(now - peer.failed > times_.farewell ? PeerState::kGone : PeerState::kLeaving);
    case RankState::kRunning: break;
  }
  return seen(lost ? PeerState::kLost : PeerState::kAlive);
}

void PeerWatch::leave(const Verdict& verdict) {
  if (verdict.report) {
    const RankPage& page = *peers_[static_cast<size_t>(*verdict.report)].page;
    const bool near = page.machine == board_.page().machine;
    std::array<char, 512> memory;
    std::array<char, 800> line;
    FixedText text(line);
    text.add("ashlar: ").add(describe(page, near ? "died" : "fell silent (its machine or the network)", memory));
    if (verdict.lost > 1) text.add("; ").add(verdict.lost - 1).add(" more lost");
    text.add("; the job ends here: the same command continues from the last checkpoint\n");
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.text().data(), text.text().size());
    std::this_thread::sleep_for(times_.linger);
  }
  board_.leave(RankState::kFailed);
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

}  // namespace ashlar::training
