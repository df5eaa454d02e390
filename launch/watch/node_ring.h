#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/watch/node_pages.h"
#include "launch/watch/ring_mac.h"

namespace ashlar::watch {

/// How others reach a rank: the port that it listens on, at the addresses of its machine.
struct NodeCard {
  struct Address {
    uint8_t family = 0;  ///< AF_INET or AF_INET6
    std::array<uint8_t, 16> bytes{};
  };
  static constexpr size_t kMost = 4;

  uint16_t port = 0;  ///< 0: it does not listen
  uint8_t count = 0;
  RingNonce nonce{};  ///< its part of what tells one connection from another
  std::array<Address, kMost> addresses{};
  uint8_t padding = 0;  ///< named, so that no uninitialised byte is sent
};

/// Listens on any free port of the addresses of its card, and of no other: those of the interfaces that are up, IPv4
/// and IPv6, loopback only where there is no other; with `only` (a name of an interface, or an address) that one alone:
/// what ASHLAR_WATCH_INTERFACE says.
class NodeListener {
 public:
  explicit NodeListener(const std::string& only);
  NodeListener(const NodeListener&) = delete;
  NodeListener& operator=(const NodeListener&) = delete;
  ~NodeListener();
  const NodeCard& card() const { return card_; }
  std::span<const int> fds() const { return fds_; }

 private:
  bool listen_on(std::span<const NodeCard::Address> addresses);
  void close_all();

  std::vector<int> fds_;
  NodeCard card_;
};

/// A node and how to reach its ranks, the lowest first.
struct RingNode {
  int32_t node = 0;
  std::string host;
  std::vector<NodeCard> ranks;
};
/// Ranks by node, ascending; nodes in order of their lowest ranks. From the machine of each rank.
std::vector<std::vector<int32_t>> nodes_of(std::span<const uint64_t> machines);

/// The nodes of a job stand in a ring, in order of their lowest ranks; each beats to the next two. Pure: from the
/// machine of each rank. `next` and `previous` name other nodes by their lowest rank, the nearest first.
struct RingPlan {
  int32_t node = 0;  ///< this one: its lowest rank
  int64_t nodes = 1;
  std::vector<int32_t> local;           ///< ranks of this node, ascending
  std::vector<int32_t> next, previous;  ///< at most two each
  std::vector<std::vector<int32_t>> next_ranks;
};
RingPlan plan_ring(std::span<const uint64_t> machines, int64_t rank);

/// The beats of this node to the next two and of the previous two to this one, over TCP, none of which ever waits. Any
/// rank of a node may send and receive: the one that leads sends, to a rank of the next node that answers each beat,
/// else to another. What is new in the far pages follows the beats, each page once to each of the two; in a healthy job
/// that is nothing. One thread.
///   A connection begins with a Hello, whose nonce is larger than any that its rank has sent before, so that a recorded
/// one is none. Every packet and every answer has a MAC by the secret of the job over both nonces, job, direction, its
/// number and what it says; a byte that does not fit ends the connection. Who has not proven itself within a second is
/// hung up on, and sooner when too many try: the oldest of the unproven makes room, the proven stay.
class NodeRing {
 public:
  struct Args {
    uint64_t job = 0;
    RingSecret secret;  ///< who does not know it is not listened to
    int32_t rank = 0;   ///< this one
    const NodeListener& listener;
    std::vector<RingNode> next;
    std::vector<int32_t> previous;  ///< whose news go to the inboxes, in this order
    std::span<NodeInbox> inboxes;
    FarPages far;
    int64_t trouble_ms = 10'000;  ///< of trying, until it is said that no beat arrives
  };
  explicit NodeRing(Args args);
  NodeRing(const NodeRing&) = delete;
  NodeRing& operator=(const NodeRing&) = delete;
  ~NodeRing();

  /// Takes what has come; sends `news` if this rank leads.
  void poll(bool leads, const NodeNews& news);
  /// The last word, to whoever can be reached within a tenth of a second.
  void farewell(const NodeNews& news);
  /// A node that no beat has reached in `trouble_ms` of trying: a line for the log, once for each. Else empty.
  std::string take_trouble();
  /// A rank of this job sends what this program does not read, since it is of another build: a line, once. Else empty.
  std::string take_mismatch();
  /// There are pages to pass on.
  bool busy() const;

 private:
  struct Out {
    size_t choice = 0;  ///< of ranks and their addresses
    int fd = -1;
    bool connected = false, reached = false, told = false;
    int64_t first_ms = 0, since_ms = 0, answered_ms = 0;
    RingSession session;
    uint64_t packets = 0, answers = 0;
    std::vector<std::byte> answer;  ///< begun
    std::vector<std::byte> unsent;
    std::vector<int64_t> versions;  ///< of the pages that have been sent, by rank; empty before the first
    uint64_t changes = 0;           ///< of the far pages, all of which have been sent
  };
  enum class Proof : uint8_t { kNone, kHello, kPacket };
  struct In {
    int fd = -1;
    int64_t since_ms = 0;
    Proof proof = Proof::kNone;
    RingSession session;
    uint64_t packets = 0;
    std::vector<std::byte> buffer;
  };
  enum class Kind : uint32_t { kNews, kReport };
  /// The first bytes of a connection. Another build may read them, too.
  struct Hello {
    uint64_t magic = 0;
    uint32_t form = 0;
    int32_t rank = 0;
    uint64_t news_bytes = 0, report_bytes = 0;
    RingNonce nonce{};  ///< nanoseconds of the caller's machine, then chance
    RingMac mac{};
  };
  struct Head {
    Kind kind = Kind::kNews;
    uint32_t bytes = 0;  ///< that follow, before the MAC
  };
  struct Answer {
    uint64_t packet = 0;
    RingMac mac{};
  };
  static size_t bytes_of(Kind kind);
  void send(Out& out, const RingNode& to, const NodeNews& news);
  bool begin(Out& out, const RingNode& to);
  static void hang_up(Out& out);
  static void fail(Out& out);
  void add(Out& out, Kind kind, std::span<const std::byte> body) const;
  bool add_pages(Out& out) const;
  bool take_answers(Out& out) const;
  std::optional<size_t> take_hello(In& in);
  std::optional<size_t> take_packet(In& in, std::span<const std::byte> bytes) const;
  void take(Kind kind, std::span<const std::byte> body) const;
  void accept_all();
  void make_room();
  bool receive(In& in);
  RingNonce new_nonce();

  const Args args_;
  std::vector<Out> outs_;
  std::vector<In> ins_;
  uint64_t last_nonce_ = 0;
  std::map<int32_t, uint64_t> heard_;  ///< the last nonce of each rank that has called
  std::optional<Hello> other_;         ///< of this job, and of another build
  bool mismatch_told_ = false;
};

}  // namespace ashlar::watch
