#include "launch/watch/node_ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace ashlar::watch {

namespace {

constexpr uint64_t kMagic = 0x74616562726c6873ULL;
constexpr size_t kMostUnsent = 256 << 10;  // of pages in one piece
constexpr int kMostPieces = 8;             // in one poll
constexpr int64_t kPatienceMs = 1000;      // for a connection, and for an answer
constexpr size_t kMostIncoming = 64;       // strangers included

NodeCard::Address address_of(const sockaddr& from) {
  NodeCard::Address address{.family = static_cast<uint8_t>(from.sa_family)};
  if (from.sa_family == AF_INET) {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in&>(from).sin_addr, 4);
  } else {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, 16);
  }
  return address;
}

std::string text_of(const NodeCard::Address& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.family, address.bytes.data(), text, sizeof(text));
  return text;
}

// A socket address to connect to.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
Endpoint endpoint(const NodeCard::Address& address, uint16_t port) {
  Endpoint end;
  if (address.family == AF_INET) {
    auto& to = reinterpret_cast<sockaddr_in&>(end.storage);
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, address.bytes.data(), 4);
    end.size = sizeof(to);
  } else {
    auto& to = reinterpret_cast<sockaddr_in6&>(end.storage);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    std::memcpy(&to.sin6_addr, address.bytes.data(), 16);
    end.size = sizeof(to);
  }
  return end;
}

std::vector<NodeCard::Address> own_addresses(const std::string& only) {
  std::vector<NodeCard::Address> first, second, loopback;  // IPv4, IPv6
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(all, freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    // A link-local address needs the name of an interface, which another machine does not share.
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr))
      continue;
    const NodeCard::Address address = address_of(*at->ifa_addr);
    if (!only.empty() && only != at->ifa_name && only != text_of(address)) continue;
    auto& list = (at->ifa_flags & IFF_LOOPBACK) != 0 && only.empty() ? loopback : family == AF_INET ? first : second;
    list.push_back(address);
  }
  first.insert(first.end(), second.begin(), second.end());
  if (first.empty()) first = loopback;
  if (first.size() > NodeCard::kMost) first.resize(NodeCard::kMost);
  return first;
}

// -1 when there is no such family.
int listen_on_any(int family, uint16_t& port) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int off = 0;
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  NodeCard::Address any{.family = static_cast<uint8_t>(family)};
  Endpoint end = endpoint(any, 0);
  const bool good = bind(fd, reinterpret_cast<sockaddr*>(&end.storage), end.size) == 0 && listen(fd, 16) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&end.storage), &end.size) == 0;
  if (!good) {
    close(fd);
    return -1;
  }
  port = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in&>(end.storage).sin_port
                                 : reinterpret_cast<sockaddr_in6&>(end.storage).sin6_port);
  return fd;
}

}  // namespace

NodeListener::NodeListener(const std::string& only) {
  const std::vector<NodeCard::Address> addresses = own_addresses(only);
  if (addresses.empty() && !only.empty()) {
    throw input_error("ranks", "ASHLAR_WATCH_INTERFACE = ", only,
                      ": no interface of this name or address is up; `ip address` lists them");
  }
  card_.count = static_cast<uint8_t>(addresses.size());
  std::copy(addresses.begin(), addresses.end(), card_.addresses.begin());
  fd_ = listen_on_any(AF_INET6, card_.port);  // takes IPv4, too
  if (fd_ < 0) fd_ = listen_on_any(AF_INET, card_.port);
}

NodeListener::~NodeListener() {
  if (fd_ >= 0) close(fd_);
}

std::vector<std::vector<int32_t>> nodes_of(std::span<const uint64_t> machines) {
  std::map<uint64_t, size_t> index;
  std::vector<std::vector<int32_t>> nodes;
  for (size_t r = 0; r < machines.size(); ++r) {
    const auto [at, fresh] = index.try_emplace(machines[r], nodes.size());
    if (fresh) nodes.emplace_back();
    nodes[at->second].push_back(static_cast<int32_t>(r));
  }
  return nodes;
}

RingPlan plan_ring(std::span<const uint64_t> machines, int64_t rank) {
  const std::vector<std::vector<int32_t>> nodes = nodes_of(machines);
  const size_t n = nodes.size();
  const auto has_rank = [&](const std::vector<int32_t>& node) {
    return machines[static_cast<size_t>(node.front())] == machines[static_cast<size_t>(rank)];
  };
  const auto own = static_cast<size_t>(std::find_if(nodes.begin(), nodes.end(), has_rank) - nodes.begin());
  RingPlan plan{.node = nodes[own].front(), .nodes = static_cast<int64_t>(n), .local = nodes[own]};
  for (size_t distance = 1; distance <= 2 && distance < n; ++distance) {
    const std::vector<int32_t>& next = nodes[(own + distance) % n];
    plan.next.push_back(next.front());
    plan.next_ranks.push_back(next);
    plan.previous.push_back(nodes[(own + n - distance) % n].front());
  }
  return plan;
}

NodeRing::NodeRing(Args args) : args_(std::move(args)), outs_(args_.next.size()) {}

NodeRing::~NodeRing() {
  for (const Out& out : outs_)
    if (out.fd >= 0) close(out.fd);
  for (const In& in : ins_) close(in.fd);
}

size_t NodeRing::bytes_of(Kind kind) { return kind == Kind::kNews ? sizeof(NodeNews) : RankReport::kBytes; }

// Whoever is reached next has heard nothing.
void NodeRing::hang_up(Out& out) {
  if (out.fd >= 0) close(std::exchange(out.fd, -1));
  out.connected = false;
  out.unsent.clear();
  out.versions.clear();
  out.changes = 0;
}

void NodeRing::fail(Out& out) {
  hang_up(out);
  ++out.choice;
}

void NodeRing::add(Out& out, Kind kind, std::span<const std::byte> body) const {
  const Head head{.magic = kMagic, .job = args_.job, .form = RankReport::kForm, .kind = kind, .bytes = body.size()};
  const auto* from = reinterpret_cast<const std::byte*>(&head);
  out.unsent.insert(out.unsent.end(), from, from + sizeof(head));
  out.unsent.insert(out.unsent.end(), body.begin(), body.end());
}

// False: there are none that it has not been sent.
bool NodeRing::add_pages(Out& out) const {
  const uint64_t changes = args_.far.changes();
  if (changes == out.changes) return false;
  out.versions.resize(static_cast<size_t>(args_.far.ranks()));
  std::vector<std::byte> body(RankReport::kBytes);
  for (size_t r = 0; r < out.versions.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    if (args_.far.version(rank) == out.versions[r]) continue;
    const auto report = args_.far.get(rank, 0);
    if (!report) continue;  // who writes it counts it once more
    out.versions[r] = report->version;
    encode(*report, body);
    add(out, Kind::kReport, body);
    if (out.unsent.size() > kMostUnsent) return true;
  }
  out.changes = changes;
  return !out.unsent.empty();
}

bool NodeRing::begin(Out& out, const RingNode& to) {
  size_t choices = 0;
  for (const NodeCard& card : to.ranks) choices += card.port == 0 ? 0 : card.count;
  if (choices == 0) return false;
  size_t choice = out.choice % choices;
  const NodeCard* card = to.ranks.data();
  while (card->port == 0 || choice >= card->count) choice -= card->port == 0 ? 0 : card->count, ++card;
  const Endpoint end = endpoint(card->addresses[choice], card->port);
  out.fd = socket(end.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (out.fd < 0) return false;
  const int on = 1;
  setsockopt(out.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  out.since_ms = out.answered_ms = machine_ms();
  const int result = connect(out.fd, reinterpret_cast<const sockaddr*>(&end.storage), end.size);
  out.connected = result == 0;
  return result == 0 || errno == EINPROGRESS;
}

void NodeRing::send(Out& out, const RingNode& to, const NodeNews& news) {
  const int64_t now = machine_ms();
  if (out.first_ms == 0) out.first_ms = now;
  if (out.fd < 0 && !begin(out, to)) return fail(out);
  if (!out.connected) {
    pollfd ready{.fd = out.fd, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) == 0) {
      if (now - out.since_ms > kPatienceMs) fail(out);
      return;
    }
    int problem = 0;
    socklen_t size = sizeof(problem);
    if (getsockopt(out.fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0 || problem != 0) return fail(out);
    out.connected = true;
    out.answered_ms = now;
  }
  bool told = false;
  for (int piece = 0; piece < kMostPieces; ++piece) {
    if (out.unsent.empty() && !told) {
      add(out, Kind::kNews, std::as_bytes(std::span(&news, 1)));
      told = true;
    } else if (out.unsent.empty() && !add_pages(out)) {
      break;
    }
    const ssize_t sent = ::send(out.fd, out.unsent.data(), out.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return fail(out);
    out.unsent.erase(out.unsent.begin(), out.unsent.begin() + std::max<ssize_t>(sent, 0));
    if (!out.unsent.empty()) break;  // it reads no faster
  }
  char answers[64];
  const ssize_t got = recv(out.fd, answers, sizeof(answers), MSG_DONTWAIT);
  if (got > 0) {
    out.answered_ms = now;
    out.reached = true;
  } else if (got == 0 || errno != EAGAIN || now - out.answered_ms > kPatienceMs) {
    fail(out);
  }
}

void NodeRing::accept_all() {
  while (args_.listener.fd() >= 0) {
    const int fd = accept4(args_.listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (ins_.size() >= kMostIncoming) {
      close(fd);
      continue;
    }
    ins_.push_back({.fd = fd, .since_ms = machine_ms(), .known = false, .buffer = {}});
  }
}

bool NodeRing::understands(const Head& head) {
  if (head.magic != kMagic || head.job != args_.job) return false;
  const bool good = head.form == RankReport::kForm && head.kind <= Kind::kReport && head.bytes == bytes_of(head.kind);
  if (!good) other_ = head;
  return good;
}

void NodeRing::take(Kind kind, std::span<const std::byte> body) const {
  if (kind == Kind::kReport) {
    const auto report = args_.far.ranks() == 0 ? std::nullopt : decode(body, args_.far.ranks());
    if (report) args_.far.put(*report, machine_ms());
    return;
  }
  NodeNews news;
  std::memcpy(static_cast<void*>(&news), body.data(), sizeof(news));
  news.host.back() = news.operation.back() = '\0';
  for (int64_t* age : {&news.progress.age_ms, &news.stall.age_ms, &news.longest_ms})
    *age = std::clamp<int64_t>(*age, 0, kNoStall);
  for (size_t i = 0; i < args_.previous.size(); ++i) {
    if (args_.previous[i] != news.node) continue;
    args_.inboxes[i].news = news;
    publish(args_.inboxes[i].received_ms, machine_ms());
  }
}

// False: nothing more will come from it.
bool NodeRing::receive(In& in) {
  std::array<std::byte, 16 << 10> piece;
  while (true) {
    const ssize_t got = recv(in.fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN && (in.known || machine_ms() - in.since_ms < 10 * kPatienceMs);
    if (got == 0) return false;
    in.buffer.insert(in.buffer.end(), piece.begin(), piece.begin() + got);
    std::span<const std::byte> rest = in.buffer;
    while (rest.size() >= sizeof(Head)) {
      Head head;
      std::memcpy(&head, rest.data(), sizeof(head));
      if (!understands(head)) return false;
      if (rest.size() < sizeof(head) + head.bytes) break;
      in.known = true;
      take(head.kind, rest.subspan(sizeof(head), head.bytes));
      rest = rest.subspan(sizeof(head) + head.bytes);
      if (head.kind == Kind::kNews && ::send(in.fd, "+", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) return false;
    }
    in.buffer.erase(in.buffer.begin(), in.buffer.end() - static_cast<std::ptrdiff_t>(rest.size()));
  }
}

void NodeRing::poll(bool leads, const NodeNews& news) {
  accept_all();
  std::erase_if(ins_, [&](In& in) {
    const bool more = receive(in);
    if (!more) close(in.fd);
    return !more;
  });
  for (size_t i = 0; i < outs_.size(); ++i) {
    if (leads) {
      send(outs_[i], args_.next[i], news);
    } else if (outs_[i].fd >= 0) {
      hang_up(outs_[i]);
    }
  }
}

void NodeRing::farewell(const NodeNews& news) {
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < outs_.size(); ++i) send(outs_[i], args_.next[i], news);
    if (round > 0 && std::all_of(outs_.begin(), outs_.end(), [](const Out& out) { return out.connected; })) return;
    usleep(10'000);
  }
}

bool NodeRing::busy() const {
  return std::any_of(outs_.begin(), outs_.end(), [&](const Out& out) {
    return out.connected && (!out.unsent.empty() || out.changes != args_.far.changes());
  });
}

std::string NodeRing::take_mismatch() {
  if (!other_ || std::exchange(mismatch_told_, true)) return "";
  return str_cat(
      "another node of this job sends messages of form ", other_->form, ", ", other_->bytes,
      " bytes, where this one reads form ", RankReport::kForm, ", ", bytes_of(Kind::kNews), " or ",
      bytes_of(Kind::kReport),
      " bytes: neither notices when the other is lost or hangs; start the same build of ashlar on all nodes");
}

std::string NodeRing::take_trouble() {
  for (size_t i = 0; i < outs_.size(); ++i) {
    Out& out = outs_[i];
    if (out.reached || out.told || out.first_ms == 0 || machine_ms() - out.first_ms < args_.trouble_ms) continue;
    out.told = true;
    const RingNode& to = args_.next[i];
    std::string tried;
    for (uint8_t a = 0; a < to.ranks.front().count; ++a)
      tried += (tried.empty() ? "" : ", ") + text_of(to.ranks.front().addresses[a]);
    return str_cat("no beat reaches ", to.host, " (tried ", tried.empty() ? "no address" : tried, ", port ",
                   to.ranks.front().port,
                   "): should that machine be lost, this one will not notice; open its ports for this machine, or set "
                   "ASHLAR_WATCH_INTERFACE there to the interface that machines reach each other by");
  }
  return "";
}

}  // namespace ashlar::watch
