// Beats between nodes over TCP, here all of one machine.
#include "launch/watch/node_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ashlar::watch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RingPlan, EachNodeBeatsToTheNextTwo) {
  const std::vector<uint64_t> machines = {7, 7, 5, 5, 9, 9, 1};  // nodes 0, 2, 4, 6
  const RingPlan first = plan_ring(machines, 1);
  EXPECT_EQ(first.node, 0);
  EXPECT_EQ(first.nodes, 4);
  EXPECT_THAT(first.local, ElementsAre(0, 1));
  EXPECT_THAT(first.next, ElementsAre(2, 4));
  EXPECT_THAT(first.next_ranks, ElementsAre(ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(first.previous, ElementsAre(6, 4));
  const RingPlan last = plan_ring(machines, 6);
  EXPECT_THAT(last.next, ElementsAre(0, 2));
  EXPECT_THAT(last.previous, ElementsAre(4, 2));
  // Of two nodes each has one neighbour, a node alone none.
  EXPECT_THAT(plan_ring(std::vector<uint64_t>{3, 8, 3}, 1).next, ElementsAre(0));
  EXPECT_THAT(plan_ring(std::vector<uint64_t>{3, 8, 3}, 1).previous, ElementsAre(0));
  EXPECT_THAT(plan_ring(std::vector<uint64_t>{3, 3}, 1).next, IsEmpty());
}

TEST(RingPlan, EveryNodeIsHeardByTwo) {
  for (size_t nodes = 3; nodes < 9; ++nodes) {
    std::vector<uint64_t> machines(nodes);
    for (size_t n = 0; n < nodes; ++n) machines[n] = 100 + n;
    std::vector<int> heard(nodes);
    for (size_t n = 0; n < nodes; ++n) {
      const RingPlan plan = plan_ring(machines, static_cast<int64_t>(n));
      for (size_t i = 0; i < 2; ++i) {
        ++heard[static_cast<size_t>(plan.previous[i])];
        const RingPlan other = plan_ring(machines, plan.previous[i]);
        EXPECT_EQ(other.next[i], plan.node) << "who is heard sends";
      }
    }
    EXPECT_TRUE(std::all_of(heard.begin(), heard.end(), [](int h) { return h == 2; }));
  }
}

constexpr uint64_t kJob = 77;

RingSecret secret_of(uint8_t first) {
  RingSecret secret;
  secret.bytes[0] = first;
  return secret;
}
const RingSecret kSecret = secret_of(5);

// A caller that keeps to the form by hand, or nearly.
class Caller {
 public:
  struct Given {
    uint64_t magic = 0x6b6f6f72726c6873ULL, job = kJob;
    uint32_t form = RankReport::kForm;
    uint64_t number = 1, status_bytes = sizeof(NodeStatus);
    RingSecret secret = kSecret;
    int32_t rank = 0;
  };
  Caller(const NodeCard& to, const Given& given) : to_(to) {
    session_ = {.secret = given.secret, .job = given.job, .caller = {}, .listener = to.nonce};
    std::memcpy(session_.caller.data(), &given.number, sizeof(given.number));
    add(given.magic), add(given.form), add(given.rank), add(given.status_bytes), add(uint64_t{RankReport::kBytes});
    add(session_.caller);
    add(session_.mac(RingDirection::kToListener, 0, bytes_));
  }
  // A packet: what kind, how long it says that it is, its body.
  void packet(uint32_t kind, uint32_t length, std::span<const std::byte> body, uint64_t skipped = 0) {
    count_ += 1 + skipped;
    const size_t begin = bytes_.size();
    add(kind), add(length);
    bytes_.insert(bytes_.end(), body.begin(), body.end());
    add(session_.mac(RingDirection::kToListener, count_, std::span(bytes_).subspan(begin)));
  }
  void status(const NodeStatus& status) { packet(0, sizeof(status), std::as_bytes(std::span(&status, 1))); }
  std::vector<std::byte>& bytes() { return bytes_; }

  static int call(const NodeCard& to, uint32_t address = INADDR_LOOPBACK) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in end{.sin_family = AF_INET, .sin_port = htons(to.port)};
    end.sin_addr.s_addr = htonl(address);
    connect(fd, reinterpret_cast<sockaddr*>(&end), sizeof(end));
    return fd;
  }
  static bool closed(int fd) {
    std::array<char, 256> answers;
    ssize_t got = 1;
    while (got > 0) got = recv(fd, answers.data(), answers.size(), MSG_DONTWAIT);
    return got == 0 || errno != EAGAIN;
  }
  // Gives the bytes, polls until the other side has hung up on their end.
  void give(NodeRing& ring, const NodeCard* to = nullptr) {
    const int fd = call(to == nullptr ? to_ : *to);
    bool given = false, over = false;
    for (int i = 0; i < 600 && !over; ++i) {
      given = given || (send(fd, bytes_.data(), bytes_.size(), MSG_NOSIGNAL) == std::ssize(bytes_) &&
                        shutdown(fd, SHUT_WR) == 0);
      ring.poll(false, {});
      over = given && closed(fd);
      usleep(over ? 0 : 5000);
    }
    EXPECT_TRUE(over);
    close(fd);
  }

 private:
  template <typename T>
  void add(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const NodeCard& to_;
  RingSession session_;
  uint64_t count_ = 0;
  std::vector<std::byte> bytes_;
};

// Node 1 with two ranks beside the sender, node 0.
class Ring : public ::testing::Test {
 protected:
  NodeRing::Args sender(uint64_t job) {
    return {.job = job,
            .secret = kSecret,
            .rank = 0,
            .listener = lonely_,
            .next = {{.node = 1, .host = "hostb", .ranks = {listeners_[0].card(), listeners_[1].card()}}},
            .previous = {1},
            .inboxes = sender_pages_.inboxes(),
            .remote = sender_pages_.remote()};
  }
  NodeRing::Args receiver(size_t rank) {
    return {.job = kJob,
            .secret = kSecret,
            .rank = static_cast<int32_t>(1 + rank),
            .listener = listeners_[rank],
            .next = {},
            .previous = {0},
            .inboxes = pages_.inboxes(),
            .remote = pages_.remote()};
  }
  static void until(const std::function<bool()>& done, const std::function<void()>& step) {
    for (int i = 0; i < 600 && !done(); ++i) {
      step();
      usleep(5000);
    }
  }
  bool heard(int64_t step) const { return pages_.inboxes()[0].status.step == step; }
  static NodeStatus status(int64_t step) { return {.node = 0, .step = step}; }

  static RankReport report(int32_t rank, int64_t version) {
    RankReport report{.version = version};
    report.page.rank = rank;
    report.page.ranks = kRanks;
    return report;
  }

  static constexpr int32_t kRanks = 3;
  NodePages sender_pages_{1, kRanks}, pages_{2, kRanks};
  NodeListener lonely_{"lo"}, listeners_[2] = {NodeListener("lo"), NodeListener("lo")};
};

TEST_F(Ring, NewsArrive) {
  NodeRing to(sender(kJob)), from(receiver(0));
  until([&] { return heard(5); }, [&] { to.poll(true, status(5)), from.poll(false, {}); });
  EXPECT_TRUE(heard(5));
  EXPECT_GT(pages_.inboxes()[0].received_ms, 0);
  NodeRing once(sender(kJob));
  once.send_last(status(6));
  from.poll(false, {}), from.poll(false, {});
  EXPECT_TRUE(heard(6)) << "the last word comes from whoever leads";
}

TEST_F(Ring, ARankThatDoesNotAnswerIsPassedOver) {
  NodeRing to(sender(kJob)), second(receiver(1));  // the first is stopped: it listens, and answers nothing
  until([&] { return heard(9); }, [&] { to.poll(true, status(9)), second.poll(false, {}); });
  EXPECT_TRUE(heard(9));
}

TEST_F(Ring, AnotherJobIsNotListenedTo) {
  NodeRing to(sender(kJob + 1)), from(receiver(0));
  for (int i = 0; i < 50; ++i) to.poll(true, status(5)), from.poll(false, {}), usleep(2000);
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0);
  NodeRing::Args stranger = sender(kJob);
  stranger.secret = secret_of(6);
  NodeRing other(std::move(stranger));
  for (int i = 0; i < 50; ++i) other.poll(true, status(5)), from.poll(false, {}), usleep(2000);
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0) << "the number of the job is no secret";
}

// Who listens at the port of a rank that has ended is not taken for it.
TEST_F(Ring, WhoDoesNotKnowTheSecretIsNotTalkedTo) {
  NodeRing::Args impostor = receiver(0);
  impostor.secret = secret_of(6);
  NodeRing to(sender(kJob)), first(std::move(impostor)), second(receiver(1));
  until([&] { return heard(9); }, [&] { to.poll(true, status(9)), first.poll(false, {}), second.poll(false, {}); });
  EXPECT_TRUE(heard(9));
}

TEST_F(Ring, PagesFollowTheBeatsAndGoOnOnce) {
  NodeRing::Args args = receiver(0);  // passes on what it gets, here to the one that it comes from
  args.next = {{.node = 0, .host = "hosta", .ranks = {lonely_.card()}}};
  NodeRing a(sender(kJob)), b(std::move(args));
  const auto poll = [&] { a.poll(true, status(5)), b.poll(true, {.node = 1, .step = 6}); };
  until([&] { return heard(5) && sender_pages_.inboxes()[0].status.step == 6; }, poll);
  EXPECT_EQ(pages_.remote().changes(), 0u) << "in a healthy job there are beats alone";
  EXPECT_FALSE(a.busy());
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(sender_pages_.remote().put(report(rank, 5), 1));
  EXPECT_TRUE(a.busy());
  until([&] { return pages_.remote().changes() == kRanks && !a.busy() && !b.busy(); }, poll);
  EXPECT_EQ(pages_.remote().changes(), kRanks);
  EXPECT_EQ(sender_pages_.remote().changes(), kRanks) << "its own come back, and change nothing";
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(pages_.remote().version(rank), 5);
  sender_pages_.remote().put(report(2, 6), 1);
  until([&] { return pages_.remote().version(2) == 6; }, poll);
  EXPECT_EQ(pages_.remote().changes(), kRanks + 1) << "what is known already is not taken again";
}

// What the listener of rank 0 makes of bytes that anybody may send, or that a rank may send by mistake.
TEST_F(Ring, MalformedBytesAreNotBelieved) {
  NodeRing from(receiver(0));
  const NodeCard& to = listeners_[0].card();
  std::vector<std::byte> body(RankReport::kBytes);
  uint64_t number = 0;
  const auto changes = [&](Caller::Given given, const std::function<void(Caller&)>& say) {
    given.number = ++number;
    Caller caller(to, given);
    say(caller);
    caller.give(from);
    return pages_.remote().changes();
  };
  const auto report_of = [&](Caller& caller) { caller.packet(1, RankReport::kBytes, body); };
  EXPECT_EQ(changes({}, report_of), 0u) << "zeros are no page";
  encode(report(2, 5), body);
  EXPECT_EQ(changes({.magic = 1}, report_of), 0u) << "a stranger";
  EXPECT_EQ(changes({.job = 1}, report_of), 0u) << "another job";
  EXPECT_EQ(changes({.secret = secret_of(9)}, report_of), 0u) << "a wrong secret";
  EXPECT_EQ(changes({}, [&](Caller& c) { c.packet(1, RankReport::kBytes, body, 1); }), 0u) << "the second packet";
  EXPECT_EQ(changes({}, [&](Caller& c) { c.packet(1, 1u << 31, body); }), 0u) << "a length of its own";
  EXPECT_EQ(changes({}, [&](Caller& c) { c.packet(7, RankReport::kBytes, body); }), 0u) << "a kind of its own";
  for (const size_t less : {1, 31, 33, 500}) {
    const auto cut = [&](Caller& c) { report_of(c), c.bytes().resize(c.bytes().size() - less); };
    EXPECT_EQ(changes({}, cut), 0u) << "cut by " << less;
  }
  const size_t whole = [&] {
    Caller caller(to, {});
    return report_of(caller), caller.bytes().size();
  }();
  for (size_t at = 0; at < whole; at += 41) {
    const auto damage = [&](Caller& c) { report_of(c), c.bytes()[at] ^= std::byte{4}; };
    EXPECT_EQ(changes({}, damage), 0u) << "a bit of byte " << at;
  }
  EXPECT_EQ(from.take_mismatch(), "");
  EXPECT_EQ(changes({.form = 1}, report_of), 0u);
  EXPECT_THAT(from.take_mismatch(),
              AllOf(HasSubstr("sends messages of format 1 ("), HasSubstr(" bytes), but this one reads"),
                    HasSubstr("start the same build of ashlar on all nodes")));
  EXPECT_EQ(changes({.status_bytes = uint64_t{1} << 60}, report_of), 0u);
  EXPECT_EQ(from.take_mismatch(), "") << "said once";
  EXPECT_EQ(changes({}, report_of), 1u) << "else nothing was tried";
  EXPECT_EQ(pages_.remote().version(2), 5);
}

TEST_F(Ring, WhatWasRecordedIsNotHeardAgain) {
  NodeRing first(receiver(0)), second(receiver(1));
  Caller caller(listeners_[0].card(), {.number = 50});
  caller.status({.state = RankState::kFailed, .node = 0, .step = 7});
  caller.give(first);
  EXPECT_TRUE(heard(7));
  pages_.inboxes()[0] = {};
  caller.give(first);
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0) << "once more";
  caller.give(second, &listeners_[1].card());
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0) << "at another rank";
  NodeRing to(sender(kJob));
  until([&] { return heard(8); }, [&] { to.poll(true, status(8)), first.poll(false, {}); });
  EXPECT_TRUE(heard(8)) << "the job goes on";
}

TEST_F(Ring, AFloodOfStrangersKeepsNobodyOut) {
  NodeRing to(sender(kJob)), from(receiver(0));
  until([&] { return heard(1); }, [&] { to.poll(true, status(1)), from.poll(false, {}); });
  const auto descriptors = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = descriptors();
  std::vector<int> strangers;
  for (int64_t round = 0; round < 30; ++round) {
    for (int i = 0; i < 20; ++i) strangers.push_back(Caller::call(listeners_[0].card()));
    to.poll(true, status(round)), from.poll(false, {}), usleep(1000), from.poll(false, {});
    EXPECT_TRUE(heard(round)) << "who was there stays";
  }
  EXPECT_LE(descriptors() - before - std::ssize(strangers), 64);
  NodeRing late(sender(kJob));
  until([&] { return heard(99); },
        [&] {
          for (int i = 0; i < 10; ++i) strangers.push_back(Caller::call(listeners_[0].card()));
          late.poll(true, status(99)), from.poll(false, {});
        });
  EXPECT_TRUE(heard(99)) << "and who comes among them is heard";
  for (const int fd : strangers) close(fd);
}

TEST_F(Ring, ASlowHandshakeEndsWithinASecond) {
  NodeRing from(receiver(0));
  Caller caller(listeners_[0].card(), {});
  caller.status({.node = 0, .step = 3});
  const int fd = Caller::call(listeners_[0].card());
  const auto start = std::chrono::steady_clock::now();
  for (size_t sent = 0; !Caller::closed(fd) && std::chrono::steady_clock::now() - start < std::chrono::seconds(10);) {
    if (sent < caller.bytes().size() - 1) sent += send(fd, &caller.bytes()[sent], 1, MSG_NOSIGNAL) == 1 ? 1 : 0;
    from.poll(false, {});
    usleep(20'000);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(seconds, 0.9);
  EXPECT_LT(seconds, 3);
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0);
  close(fd);
}

TEST_F(Ring, APortThatIsClosedIsSaidOnce) {
  NodeRing::Args args = sender(kJob);
  for (NodeCard& card : args.next[0].ranks) card.port = 1;
  args.trouble_ms = 200;
  NodeRing to(std::move(args));
  std::string said;
  until([&] { return !said.empty(); }, [&] { to.poll(true, status(5)), said = to.take_trouble(); });
  EXPECT_THAT(said, AllOf(HasSubstr("no heartbeat reaches hostb (tried 127.0.0.1"), HasSubstr("port 1)"),
                          HasSubstr("ASHLAR_WATCH_INTERFACE")));
  to.poll(true, status(5));
  EXPECT_EQ(to.take_trouble(), "");
}

// No other address of this machine answers at its port.
TEST(Listener, IsBoundToItsOwnAddresses) {
  const NodeListener listener("127.0.0.1");
  ASSERT_EQ(listener.card().count, 1);
  EXPECT_EQ(listener.fds().size(), 1u);
  for (const auto& [address, answers] : {std::pair(uint32_t{INADDR_LOOPBACK}, true), {INADDR_LOOPBACK + 1, false}}) {
    const int fd = Caller::call(listener.card(), address);
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    EXPECT_EQ(poll(&ready, 1, 1000), 1);
    EXPECT_EQ((ready.revents & (POLLERR | POLLHUP)) == 0, answers);
    close(fd);
  }
}

TEST(Listener, HasIpv6Too) {
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const bool there = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  if (probe >= 0) close(probe);
  if (!there) GTEST_SKIP() << "this machine has no IPv6 loopback";
  const NodeListener listener("::1");
  ASSERT_EQ(listener.card().count, 1);
  EXPECT_EQ(listener.card().addresses[0].family, AF_INET6);
  const NodeListener both("lo");
  EXPECT_EQ(both.card().count, 2);
  EXPECT_EQ(both.fds().size(), 2u);
}

TEST(RingMac, DependsOnEverything) {
  const RingSession session{.secret = kSecret, .job = 1, .caller = {1}, .listener = {2}};
  const std::array<std::byte, 2> body{std::byte{7}, std::byte{8}};
  const RingMac mac = session.mac(RingDirection::kToListener, 1, body);
  EXPECT_TRUE(same(mac, session.mac(RingDirection::kToListener, 1, body)));
  RingSession other = session;
  other.job = 2;
  EXPECT_FALSE(same(mac, other.mac(RingDirection::kToListener, 1, body)));
  other = session;
  other.caller = {2};
  EXPECT_FALSE(same(mac, other.mac(RingDirection::kToListener, 1, body)));
  EXPECT_FALSE(same(mac, session.mac(RingDirection::kToCaller, 1, body)));
  EXPECT_FALSE(same(mac, session.mac(RingDirection::kToListener, 2, body)));
  EXPECT_FALSE(same(mac, session.mac(RingDirection::kToListener, 1, std::span(body).first(1))));
  EXPECT_NE(RingSecret::random().bytes, RingSecret::random().bytes);
}

TEST(Listener, AnInterfaceThatIsNotThereIsNamed) {
  EXPECT_GT(NodeListener("").card().count, 0);
  try {
    const NodeListener none("nowhere0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("ASHLAR_WATCH_INTERFACE = 'nowhere0'"));
  }
}

}  // namespace
}  // namespace ashlar::watch
