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

/// Network address of a rank: its port, and the addresses of its machine.
struct NodeCard {
  struct Address {
    uint8_t family = 0;  ///< AF_INET or AF_INET6
    std::array<uint8_t, 16> bytes{};
  };
  static constexpr size_t kMost = 4;

  uint16_t port = 0;  ///< 0: it does not listen
  uint8_t count = 0;
  RingNonce nonce{};  ///< its part of a connection's identity
  std::array<Address, kMost> addresses{};
  uint8_t padding = 0;  ///< named, so that no uninitialised byte is sent
};

/// Listens on a free port at the addresses in its card: the IPv4 and IPv6 addresses of all interfaces that are up.
/// Loopback is used only if there is no other. If `only` (ASHLAR_WATCH_INTERFACE) names an interface or an address, the
/// listener uses only that.
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

/// A node and how to reach its ranks, lowest rank first.
struct RingNode {
  int32_t node = 0;
  std::string host;
  std::vector<NodeCard> ranks;
};
/// Ranks grouped by node, ascending; nodes ordered by their lowest ranks. Computed from the machine of each rank.
std::vector<std::vector<int32_t>> nodes_of(std::span<const uint64_t> machines);

/// The nodes of a job form a ring, ordered by their lowest ranks; each sends heartbeats to the next two. Pure: computed
/// from the machine of each rank. `next` and `previous` name other nodes by their lowest rank, nearest first.
struct RingPlan {
  int32_t node = 0;  ///< lowest rank of this node
  int64_t nodes = 1;
  std::vector<int32_t> local;           ///< ranks of this node, ascending
  std::vector<int32_t> next, previous;  ///< at most two each
  std::vector<std::vector<int32_t>> next_ranks;
};
RingPlan plan_ring(std::span<const uint64_t> machines, int64_t rank);

/// Heartbeats of this node to the next two nodes and from the previous two, over TCP, without blocking. Any rank of a
/// node may send and receive. The leader sends to one rank of the next node as long as that rank answers each
/// heartbeat, else to another rank. New remote pages follow the heartbeats; each page is sent once to each of the two
/// nodes. In a healthy job there are no such pages. For use by one thread.
///   A connection begins with a Hello, whose nonce is larger than all earlier ones of its rank, so a replayed Hello is
/// rejected. Every packet and every answer has a MAC with the job's secret over both nonces, job, direction, counter
/// and body; any mismatch closes the connection. A connection that is not authenticated within a second is closed. If
/// there are too many connections, the oldest unauthenticated one is closed sooner; authenticated ones stay.
class NodeRing {
 public:
  struct Args {
    uint64_t job = 0;
    RingSecret secret;  ///< shared by the job; peers without it are rejected
    int32_t rank = 0;   ///< this rank
    const NodeListener& listener;
    std::vector<RingNode> next;
    std::vector<int32_t> previous;  ///< nodes whose messages go to the inboxes, in this order
    std::span<NodeInbox> inboxes;
    RemotePages remote;
    int64_t trouble_ms = 10'000;  ///< time without an answered heartbeat until a warning
  };
  explicit NodeRing(Args args);
  NodeRing(const NodeRing&) = delete;
  NodeRing& operator=(const NodeRing&) = delete;
  ~NodeRing();

  /// Receives messages. Sends `status` if this rank leads.
  void poll(bool leads, const NodeStatus& status);
  /// Sends the last message to nodes that can be reached within a tenth of a second.
  void send_last(const NodeStatus& status);
  /// Returns a line for the log, once for each node that no heartbeat has reached for `trouble_ms`; otherwise an empty
  /// text.
  std::string take_trouble();
  /// Returns a line for the log, once, when a rank of this job sends messages of another build; otherwise an empty
  /// text.
  std::string take_mismatch();
  /// True if there are pages to forward.
  bool busy() const;

 private:
  struct Out {
    size_t choice = 0;  ///< index into ranks and their addresses
    int fd = -1;
    bool connected = false, reached = false, reported = false;
    int64_t first_ms = 0, since_ms = 0, answered_ms = 0;
    RingSession session;
    uint64_t packets = 0, answers = 0;
    std::vector<std::byte> answer;  ///< incomplete answer
    std::vector<std::byte> unsent;
    std::vector<int64_t> versions;  ///< versions of the sent pages, by rank; empty before the first
    uint64_t changes = 0;           ///< RemotePages::changes up to which all are sent
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
  enum class Kind : uint32_t { kStatus, kReport };
  /// The first bytes of a connection. Other builds may read them too.
  struct Hello {
    uint64_t magic = 0;
    uint32_t form = 0;
    int32_t rank = 0;
    uint64_t status_bytes = 0, report_bytes = 0;
    RingNonce nonce{};  ///< nanoseconds of the caller's clock, then random bytes
    RingMac mac{};
  };
  struct Head {
    Kind kind = Kind::kStatus;
    uint32_t bytes = 0;  ///< bytes that follow, before the MAC
  };
  struct Answer {
    uint64_t packet = 0;
    RingMac mac{};
  };
  static size_t bytes_of(Kind kind);
  void send(Out& out, const RingNode& to, const NodeStatus& status);
  bool begin(Out& out, const RingNode& to);
  static void disconnect(Out& out);
  static void fail(Out& out);
  void add(Out& out, Kind kind, std::span<const std::byte> body) const;
  bool add_pages(Out& out) const;
  bool read_answers(Out& out) const;
  std::optional<size_t> read_hello(In& in);
  std::optional<size_t> read_packet(In& in, std::span<const std::byte> bytes) const;
  void store(Kind kind, std::span<const std::byte> body) const;
  void accept_all();
  void make_room();
  bool receive(In& in);
  RingNonce new_nonce();

  const Args args_;
  std::vector<Out> outs_;
  std::vector<In> ins_;
  uint64_t last_nonce_ = 0;
  std::map<int32_t, uint64_t> last_nonces_;  ///< the last nonce of each rank that has connected
  std::optional<Hello> other_;               ///< Hello of another build in this job
  bool mismatch_reported_ = false;
};

}  // namespace ashlar::watch
