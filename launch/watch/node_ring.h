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

  uint16_t port = 0;  ///< 0: the rank does not listen
  uint8_t count = 0;  ///< number of addresses
  RingNonce nonce{};  ///< the listener's part of a connection's identity (RingSession)
  std::array<Address, kMost> addresses{};
  uint8_t padding = 0;  ///< named, so that no uninitialised byte is sent
};

/// Listens on a free port at the addresses of its NodeCard: IPv4 and IPv6 addresses of the interfaces that are up, at
/// most NodeCard::kMost. Loopback is used only if there is no other interface. If `only` (ASHLAR_WATCH_INTERFACE) names
/// an interface or an address, the listener uses only that.
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

/// A node and the network addresses of its ranks, lowest rank first.
struct RingNode {
  int32_t node = 0;
  std::string host;
  std::vector<NodeCard> ranks;  ///< address of each rank
};
/// Groups the ranks by node: returns one ascending list of ranks per node; the lists are ordered by their lowest ranks.
/// `machines`: the id of each rank's machine (this_machine).
std::vector<std::vector<int32_t>> nodes_of(std::span<const uint64_t> machines);

/// The nodes of a job form a ring, ordered by their lowest ranks; each node sends heartbeats to the next two. `next`
/// and `previous` name other nodes by their lowest rank, nearest first. plan_ring computes this from the machine ids of
/// all ranks, without communication.
struct RingPlan {
  int32_t node = 0;  ///< lowest rank of this node
  int64_t nodes = 1;
  std::vector<int32_t> local;                    ///< ranks of this node, ascending
  std::vector<int32_t> next, previous;           ///< at most two nodes each
  std::vector<std::vector<int32_t>> next_ranks;  ///< ranks of each node in `next`
};
RingPlan plan_ring(std::span<const uint64_t> machines, int64_t rank);

/// Sends the heartbeats of this node to the next two nodes and receives the heartbeats of the previous two nodes, over
/// TCP, without blocking. Any rank of a node may send and receive. The leading rank (Watchdog) sends to one rank of the
/// next node as long as that rank answers each heartbeat, else to another rank of that node. In a hang, the reports in
/// RemotePages follow the heartbeats; each report is sent once to each of the two nodes. In a healthy job there are no
/// reports. For use by one thread.
///   A connection begins with a Hello, whose nonce is larger than all earlier nonces of its rank, so a replayed Hello
/// is rejected. Every packet and every answer has a message authentication code (MAC), keyed with the job's secret,
/// over both nonces, job id, direction, counter and body; any mismatch closes the connection. A connection that is not
/// authenticated within a second is closed. If there are too many connections, the oldest unauthenticated one is closed
/// sooner; an authenticated connection is closed only if all are authenticated.
class NodeRing {
 public:
  struct Args {
    uint64_t job = 0;
    RingSecret secret;  ///< shared by the job; peers without it are rejected
    int32_t rank = 0;   ///< this rank
    const NodeListener& listener;
    std::vector<RingNode> next;
    std::vector<int32_t> previous;  ///< previous nodes; inboxes[i] receives the heartbeats of previous[i]
    std::span<NodeInbox> inboxes;
    RemotePages remote;
    int64_t trouble_ms = 10'000;  ///< time without any answer from a node after which take_trouble reports it
  };
  explicit NodeRing(Args args);
  NodeRing(const NodeRing&) = delete;
  NodeRing& operator=(const NodeRing&) = delete;
  ~NodeRing();

  /// Receives packets. Sends `status` to the next two nodes if this rank leads its node.
  void poll(bool leads, const NodeStatus& status);
  /// Sends the last heartbeat to the next nodes, if they can be reached within a tenth of a second.
  void send_last(const NodeStatus& status);
  /// Returns a line for the log, once for each next node that has answered no heartbeat within `trouble_ms` of the
  /// first attempt; otherwise an empty text.
  std::string take_trouble();
  /// Returns a line for the log, once, if a rank of this job has connected that runs another build of ashlar; otherwise
  /// an empty text.
  std::string take_mismatch();
  /// True if reports remain to be sent.
  bool busy() const;

 private:
  struct Out {
    size_t choice = 0;  ///< index of the tried address among all addresses of all ranks of the node
    int fd = -1;
    bool connected = false, reached = false, reported = false;
    int64_t first_ms = 0, since_ms = 0, answered_ms = 0;
    RingSession session;
    uint64_t packets = 0, answers = 0;
    std::vector<std::byte> answer;  ///< received part of an incomplete answer
    std::vector<std::byte> unsent;
    std::vector<int64_t> versions;  ///< versions of the sent reports, by rank; empty before the first report
    uint64_t changes = 0;           ///< value of RemotePages::changes when all reports were last sent
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
  /// The first bytes of a connection. A rank of another build reads them too, to detect the mismatch.
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
    uint32_t bytes = 0;  ///< size of the body, which follows; the MAC follows the body
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
  std::map<int32_t, uint64_t> last_nonces_;  ///< largest nonce number of each rank that has connected
  std::optional<Hello> other_;               ///< Hello of a rank of this job that runs another build
  bool mismatch_reported_ = false;
};

}  // namespace ashlar::watch
