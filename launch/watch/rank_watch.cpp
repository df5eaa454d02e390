#include "launch/watch/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "parallel/comm/bootstrap.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::watch {

namespace {

// Where to find the shared memory of a node: the process that created the memory, and the memory's descriptor in that
// process.
struct PagesOfNode {
  int32_t pid = 0, fd = -1;
};

}  // namespace

RankWatch::RankWatch(Rendezvous rendezvous, SignalWatch& signals, const HangOptions& hang)
    : signals_(signals),
      rendezvous_(std::move(rendezvous)),
      recorder_(rendezvous_.pages->pages()[static_cast<size_t>(
                    std::ranges::find(rendezvous_.plan.local, rendezvous_.info.rank) - rendezvous_.plan.local.begin())],
                rendezvous_.info, rendezvous_.engine) {
  if (rendezvous_.listener != nullptr) {
    ring_.emplace(NodeRing::Args{.job = rendezvous_.info.job,
                                 .secret = rendezvous_.secret,
                                 .rank = static_cast<int32_t>(rendezvous_.info.rank),
                                 .listener = *rendezvous_.listener,
                                 .next = rendezvous_.next,
                                 .previous = rendezvous_.plan.previous,
                                 .inboxes = rendezvous_.pages->inboxes(),
                                 .remote = rendezvous_.pages->remote()});
  }
  watchdog_.emplace(Watchdog::Args{.recorder = recorder_,
                                   .signals = signals_,
                                   .pages = *rendezvous_.pages,
                                   .ring = ring_ ? &*ring_ : nullptr,
                                   .node = rendezvous_.plan.node,
                                   .hang = hang,
                                   .times = {},
                                   .nodes = rendezvous_.nodes});
  signals_.before_leaving([this] { recorder_.leave(RankState::kFailed); });
  signals_.ask_whether_over([this] {
    const std::span<const RankPage> pages = rendezvous_.pages->pages();
    return std::ranges::any_of(pages, [](const RankPage& page) {
      return look_at(page.state) == RankState::kFailed || look_at(page.state) == RankState::kCrashed ||
             look_at(page.found_dead) != 0;
    });
  });
}

RankWatch::~RankWatch() {
  signals_.before_leaving(nullptr);
  signals_.ask_whether_over(nullptr);
}

std::unique_ptr<RankWatch> watch_ranks(comm::ControlPlane& ranks, SignalWatch& signals, HangOptions hang) {
  RankWatch::Rendezvous m;
  m.engine = ranks.engine();
  m.info = {.rank = ranks.rank(),
            .ranks = ranks.size(),
            .host = comm::Bootstrap::host_name(),
            .job = comm::broadcast_value(ranks, new_job(), 0)};
  std::vector<uint64_t> machines = comm::gather_values(ranks, m.info.machine);
  // 1. Shared memory: the lowest rank of each machine creates it, the others open it. A rank that cannot open it forms
  // its own node.
  for (bool again = true; again;) {
    m.plan = plan_ring(machines, m.info.rank);
    const auto count = static_cast<int64_t>(m.plan.local.size());
    const int64_t remote = m.plan.nodes > 1 ? m.info.ranks : 0;
    const bool makes = m.plan.node == m.info.rank;
    m.pages = makes ? std::make_unique<NodePages>(count, remote) : nullptr;
    const std::vector<PagesOfNode> made = comm::gather_values(ranks, PagesOfNode{getpid(), makes ? m.pages->fd() : -1});
    if (!makes) {
      const auto& [pid, fd] = made[static_cast<size_t>(m.plan.node)];
      m.pages = NodePages::open(pid, fd, count, remote);
    }
    if (m.pages == nullptr) m.info.machine = new_job();
    machines = comm::gather_values(ranks, m.info.machine);
    again = plan_ring(machines, m.info.rank).nodes != m.plan.nodes;  // equal on all ranks, so all repeat or none
  }
  m.pages->close_fd();
  // 2. Exchanges the addresses of the next nodes.
  hang.nodes = m.plan.nodes;
  if (m.plan.nodes > 1) {
    comm::try_on_first_rank(ranks, [&] { m.secret = RingSecret::random(); });
    m.secret = comm::broadcast_value(ranks, m.secret, 0);
    const char* only = std::getenv("ASHLAR_WATCH_INTERFACE");
    comm::try_on_all_ranks(ranks, [&] { m.listener = std::make_unique<NodeListener>(only == nullptr ? "" : only); });
    const std::vector<NodeCard> cards = comm::gather_values(ranks, m.listener->card());
    std::array<char, 64> name{};
    m.info.host.copy(name.data(), name.size() - 1);
    const std::vector<std::array<char, 64>> hosts = comm::gather_values(ranks, name);
    for (size_t n = 0; n < m.plan.next.size(); ++n) {
      RingNode next{.node = m.plan.next[n], .host = hosts[static_cast<size_t>(m.plan.next[n])].data(), .ranks = {}};
      for (const int32_t rank : m.plan.next_ranks[n]) next.ranks.push_back(cards[static_cast<size_t>(rank)]);
      m.next.push_back(std::move(next));
    }
    for (std::vector<int32_t>& local : nodes_of(machines)) {
      const char* host = hosts[static_cast<size_t>(local.front())].data();
      m.nodes.push_back({.host = host, .ranks = std::move(local)});
    }
  }
  return std::make_unique<RankWatch>(std::move(m), signals, hang);
}

}  // namespace ashlar::watch
