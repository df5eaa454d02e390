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
#include <ctime>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::watch {

namespace {

constexpr uint64_t kMagic = 0x6b6f6f72726c6873ULL;
constexpr int kBacklog = 128;              // maximum number of pending connections in the kernel
constexpr size_t kMostUnsent = 256 << 10;  // no more reports are queued while more bytes than this are unsent
constexpr size_t kMostPieces = 8;          // maximum number of calls of recv or send per connection and poll
constexpr int64_t kPatienceMs = 1000;      // timeout for connecting, for authentication and for an answer
constexpr size_t kMostIncoming = 64;       // maximum number of incoming connections, including unauthenticated ones

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
  std::vector<NodeCard::Address> first, second, loopback;  // IPv4, IPv6, loopback
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> guard(all, freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    // Skips link-local addresses: they need an interface name, which is valid only on this machine.
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

/// Listens at the address and returns the descriptor, -1 on failure. If `port` is 0, chooses a free port and stores it
/// in `port`.
int listen_at(const NodeCard::Address& address, uint16_t& port) {
  const int fd = socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  if (address.family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  Endpoint end = endpoint(address, port);
  const bool good = bind(fd, reinterpret_cast<sockaddr*>(&end.storage), end.size) == 0 && listen(fd, kBacklog) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&end.storage), &end.size) == 0;
  if (!good) {
    close(fd);
    return -1;
  }
  port = ntohs(address.family == AF_INET ? reinterpret_cast<sockaddr_in&>(end.storage).sin_port
                                         : reinterpret_cast<sockaddr_in6&>(end.storage).sin6_port);
  return fd;
}

/// Returns the bytes of a value that is sent over the network. Refuses types with unnamed padding, which would send
/// uninitialised bytes.
template <typename T>
std::span<const std::byte> bytes_of_value(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = bytes_of_value(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Returns the number in the first eight bytes of a nonce. Each connection of a rank has a larger number than the
/// rank's earlier connections.
uint64_t number_of(const RingNonce& nonce) {
  uint64_t number = 0;
  std::memcpy(&number, nonce.data(), sizeof(number));
  return number;
}

}  // namespace

NodeListener::NodeListener(const std::string& only) {
  const std::vector<NodeCard::Address> addresses = own_addresses(only);
  if (addresses.empty() && !only.empty()) {
    throw input_error("ranks", "ASHLAR_WATCH_INTERFACE = ", printable(only),
                      ": no interface of this name or address is up; `ip address` lists them");
  }
  static_assert(std::has_unique_object_representations_v<NodeCard>);  // ranks exchange cards as bytes
  card_.nonce = random_nonce();
  for (int again = 0; again < 16 && !listen_on(addresses); ++again) close_all();
}

/// Returns false if the port chosen at the first address is not free at another address.
bool NodeListener::listen_on(std::span<const NodeCard::Address> addresses) {
  for (const NodeCard::Address& address : addresses) {
    const int fd = listen_at(address, card_.port);
    if (fd < 0 && errno == EADDRINUSE && card_.count > 0) return false;
    if (fd < 0) continue;  // not usable yet, e.g. a new IPv6 address
    fds_.push_back(fd);
    card_.addresses[card_.count++] = address;
  }
  return true;
}

void NodeListener::close_all() {
  for (const int fd : fds_) close(fd);
  fds_.clear();
  card_.port = 0;
  card_.count = 0;
}

NodeListener::~NodeListener() { close_all(); }

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
  const auto own = static_cast<size_t>(std::ranges::find_if(nodes, has_rank) - nodes.begin());
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

size_t NodeRing::bytes_of(Kind kind) { return kind == Kind::kStatus ? sizeof(NodeStatus) : RankReport::kBytes; }

// Closes the connection and resets its state, since the peer of the next connection has received nothing.
void NodeRing::disconnect(Out& out) {
  if (out.fd >= 0) close(std::exchange(out.fd, -1));
  out.connected = false;
  out.unsent.clear();
  out.versions.clear();
  out.changes = 0;
}

void NodeRing::fail(Out& out) {
  disconnect(out);
  ++out.choice;
}

void NodeRing::add(Out& out, Kind kind, std::span<const std::byte> body) const {
  std::vector<std::byte> packet;
  append(packet, Head{.kind = kind, .bytes = static_cast<uint32_t>(body.size())});
  packet.insert(packet.end(), body.begin(), body.end());
  append(packet, out.session.mac(RingDirection::kToListener, ++out.packets, packet));
  out.unsent.insert(out.unsent.end(), packet.begin(), packet.end());
}

RingNonce NodeRing::new_nonce() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  last_nonce_ = std::max(last_nonce_ + 1, ns);
  RingNonce nonce = random_nonce();
  std::memcpy(nonce.data(), &last_nonce_, sizeof(last_nonce_));
  return nonce;
}

// Queues reports that were not sent to this peer. Returns false if there are none.
bool NodeRing::add_pages(Out& out) const {
  const uint64_t changes = args_.remote.changes();
  if (changes == out.changes) return false;
  out.versions.resize(static_cast<size_t>(args_.remote.ranks()));
  std::vector<std::byte> body(RankReport::kBytes);
  for (size_t r = 0; r < out.versions.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    if (args_.remote.version(rank) == out.versions[r]) continue;
    const auto report = args_.remote.get(rank, 0);
    if (!report) continue;  // being written: its writer increments `changes` afterwards
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
  out.session = {.secret = args_.secret, .job = args_.job, .caller = new_nonce(), .listener = card->nonce};
  out.packets = out.answers = 0;
  out.answer.clear();
  Hello hello{.magic = kMagic,
              .form = RankReport::kForm,
              .rank = args_.rank,
              .status_bytes = bytes_of(Kind::kStatus),
              .report_bytes = bytes_of(Kind::kReport),
              .nonce = out.session.caller};
  hello.mac = out.session.mac(RingDirection::kToListener, 0, bytes_of_value(hello).first(offsetof(Hello, mac)));
  append(out.unsent, hello);
  const int result = connect(out.fd, reinterpret_cast<const sockaddr*>(&end.storage), end.size);
  out.connected = result == 0;
  return result == 0 || errno == EINPROGRESS;
}

void NodeRing::send(Out& out, const RingNode& to, const NodeStatus& status) {
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
  bool reported = false;
  for (size_t piece = 0; piece < kMostPieces; ++piece) {
    if (!reported && (out.unsent.empty() || out.packets == 0)) {
      add(out, Kind::kStatus, bytes_of_value(status));
      reported = true;
    } else if (out.unsent.empty() && !add_pages(out)) {
      break;
    }
    const ssize_t sent = ::send(out.fd, out.unsent.data(), out.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return fail(out);
    out.unsent.erase(out.unsent.begin(), out.unsent.begin() + std::max<ssize_t>(sent, 0));
    if (!out.unsent.empty()) break;  // the peer receives more slowly than this rank sends
  }
  if (!read_answers(out)) return fail(out);
  if (now - out.answered_ms > kPatienceMs) fail(out);
}

// Returns false if the peer does not belong to this job or has closed the connection.
bool NodeRing::read_answers(Out& out) const {
  std::array<std::byte, 32 * sizeof(Answer)> piece;
  const ssize_t got = recv(out.fd, piece.data(), piece.size(), MSG_DONTWAIT);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  out.answer.insert(out.answer.end(), piece.begin(), piece.begin() + got);
  while (out.answer.size() >= sizeof(Answer)) {
    Answer answer;
    std::memcpy(&answer, out.answer.data(), sizeof(answer));
    const RingMac wanted = out.session.mac(RingDirection::kToCaller, answer.packet, {});
    if (!same(answer.mac, wanted) || answer.packet <= out.answers || answer.packet > out.packets) return false;
    out.answers = answer.packet;
    out.answered_ms = machine_ms();
    out.reached = true;
    out.answer.erase(out.answer.begin(), out.answer.begin() + sizeof(Answer));
  }
  return true;
}

/// If there are too many connections, closes the oldest connection without a Hello; if all have sent one, the oldest
/// without an authenticated packet; if all are authenticated, the oldest of all.
void NodeRing::make_room() {
  if (ins_.size() < kMostIncoming) return;
  const auto order = [](const In& in) { return std::pair(in.proof, in.since_ms); };
  const auto oldest = std::ranges::min_element(ins_, [&](const In& a, const In& b) { return order(a) < order(b); });
  close(oldest->fd);
  ins_.erase(oldest);
}

void NodeRing::accept_all() {
  for (const int listener : args_.listener.fds()) {
    for (size_t i = 0; i < kMostIncoming / 2; ++i) {  // limit per poll; further connections wait
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) break;
      make_room();
      ins_.push_back({.fd = fd, .since_ms = machine_ms()});
    }
  }
}

void NodeRing::store(Kind kind, std::span<const std::byte> body) const {
  if (kind == Kind::kReport) {
    const auto report = args_.remote.ranks() == 0 ? std::nullopt : decode(body, args_.remote.ranks());
    if (report) args_.remote.put(*report, machine_ms());
    return;
  }
  NodeStatus status;
  std::memcpy(static_cast<void*>(&status), body.data(), sizeof(status));
  status.host.back() = status.operation.back() = '\0';
  for (int64_t* age : {&status.progress.age_ms, &status.stall.age_ms, &status.longest_ms})
    *age = std::clamp<int64_t>(*age, 0, kNoStall);
  for (size_t i = 0; i < args_.previous.size(); ++i) {
    if (args_.previous[i] != status.node) continue;
    args_.inboxes[i].status = status;
    publish(args_.inboxes[i].received_ms, machine_ms());
  }
}

// Returns the number of bytes consumed, or nullopt if the Hello is a forgery, a replay or from another build.
std::optional<size_t> NodeRing::read_hello(In& in) {
  Hello hello;
  std::memcpy(&hello, in.buffer.data(), sizeof(hello));
  if (hello.magic != kMagic) return std::nullopt;
  in.session = {
      .secret = args_.secret, .job = args_.job, .caller = hello.nonce, .listener = args_.listener.card().nonce};
  const auto signed_bytes = bytes_of_value(hello).first(offsetof(Hello, mac));
  if (!same(hello.mac, in.session.mac(RingDirection::kToListener, 0, signed_bytes))) return std::nullopt;
  uint64_t& last = last_nonces_[hello.rank];
  if (number_of(hello.nonce) <= last) return std::nullopt;  // a replayed Hello
  last = number_of(hello.nonce);
  const bool good = hello.form == RankReport::kForm && hello.status_bytes == bytes_of(Kind::kStatus) &&
                    hello.report_bytes == bytes_of(Kind::kReport);
  if (!good) {
    other_ = hello;
    return std::nullopt;
  }
  in.proof = Proof::kHello;
  return sizeof(hello);
}

// Returns the number of bytes consumed (0 if the packet is incomplete), or nullopt if the packet is not authentic or
// the answer cannot be sent.
std::optional<size_t> NodeRing::read_packet(In& in, std::span<const std::byte> bytes) const {
  Head head;
  RingMac mac;
  if (bytes.size() < sizeof(head)) return 0;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.kind > Kind::kReport || head.bytes != bytes_of(head.kind)) return std::nullopt;
  const size_t signed_bytes = sizeof(head) + head.bytes;
  if (bytes.size() < signed_bytes + sizeof(mac)) return 0;
  std::memcpy(mac.data(), bytes.data() + signed_bytes, sizeof(mac));
  const uint64_t packet = ++in.packets;
  if (!same(mac, in.session.mac(RingDirection::kToListener, packet, bytes.first(signed_bytes)))) return std::nullopt;
  in.proof = Proof::kPacket;
  store(head.kind, bytes.subspan(sizeof(head), head.bytes));
  if (head.kind == Kind::kStatus) {
    const Answer answer{.packet = packet, .mac = in.session.mac(RingDirection::kToCaller, packet, {})};
    const auto bytes_to_send = bytes_of_value(answer);
    const ssize_t sent = ::send(in.fd, bytes_to_send.data(), bytes_to_send.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(sizeof(answer))) return std::nullopt;
  }
  return signed_bytes + sizeof(mac);
}

// Returns false if the connection is to be closed.
bool NodeRing::receive(In& in) {
  std::array<std::byte, 16 << 10> piece;
  for (size_t i = 0; i < kMostPieces; ++i) {
    const bool greets = in.proof == Proof::kNone;
    const size_t most = greets ? sizeof(Hello) - in.buffer.size() : piece.size();
    const ssize_t got = recv(in.fd, piece.data(), most, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN && (in.proof == Proof::kPacket || machine_ms() - in.since_ms < kPatienceMs);
    if (got == 0) return false;
    in.buffer.insert(in.buffer.end(), piece.begin(), piece.begin() + got);
    if (greets && in.buffer.size() < sizeof(Hello)) continue;
    std::optional<size_t> taken = greets ? read_hello(in) : read_packet(in, in.buffer);
    size_t done = 0;
    for (; taken.value_or(0) > 0; taken = read_packet(in, std::span(in.buffer).subspan(done))) done += *taken;
    if (!taken) return false;
    in.buffer.erase(in.buffer.begin(), in.buffer.begin() + static_cast<std::ptrdiff_t>(done));
  }
  return true;  // the next poll reads the rest
}

void NodeRing::poll(bool leads, const NodeStatus& status) {
  accept_all();
  std::erase_if(ins_, [&](In& in) {
    const bool more = receive(in);
    if (!more) close(in.fd);
    return !more;
  });
  for (size_t i = 0; i < outs_.size(); ++i) {
    if (leads) {
      send(outs_[i], args_.next[i], status);
    } else if (outs_[i].fd >= 0) {
      disconnect(outs_[i]);
    }
  }
}

void NodeRing::send_last(const NodeStatus& status) {
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < outs_.size(); ++i) send(outs_[i], args_.next[i], status);
    if (round > 0 && std::ranges::all_of(outs_, [](const Out& out) { return out.connected; })) return;
    usleep(10'000);
  }
}

bool NodeRing::busy() const {
  return std::ranges::any_of(outs_, [&](const Out& out) {
    return out.connected && (!out.unsent.empty() || out.changes != args_.remote.changes());
  });
}

std::string NodeRing::take_mismatch() {
  if (!other_ || std::exchange(mismatch_reported_, true)) return "";
  return str_cat(
      "another node of this job sends messages of format ", other_->form, " (heartbeats of ", other_->status_bytes,
      " bytes, reports of ", other_->report_bytes, " bytes), but this one reads format ", RankReport::kForm, " (",
      bytes_of(Kind::kStatus), " and ", bytes_of(Kind::kReport),
      " bytes); neither node detects a loss or hang of the other: start the same build of ashlar on all nodes");
}

std::string NodeRing::take_trouble() {
  for (size_t i = 0; i < outs_.size(); ++i) {
    Out& out = outs_[i];
    if (out.reached || out.reported || out.first_ms == 0 || machine_ms() - out.first_ms < args_.trouble_ms) continue;
    out.reported = true;
    const RingNode& to = args_.next[i];
    std::string tried;
    for (uint8_t a = 0; a < to.ranks.front().count; ++a)
      tried += (tried.empty() ? "" : ", ") + text_of(to.ranks.front().addresses[a]);
    return str_cat(
        "no heartbeat reaches ", to.host, " (tried ", tried.empty() ? "no address" : tried, ", port ",
        to.ranks.front().port, "): the loss of this machine will not be detected by ", to.host,
        "; open the ports of that machine for this one, or set ASHLAR_WATCH_INTERFACE on that machine to the "
        "interface that connects the two");
  }
  return "";
}

}  // namespace ashlar::watch
