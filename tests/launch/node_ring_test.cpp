// Beats between nodes over TCP, here all of one machine.
#include "launch/watch/node_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"

namespace ashlar::watch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

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

// Node 1 with two ranks beside the sender, node 0.
class Ring : public ::testing::Test {
 protected:
  NodeRing::Args sender(uint64_t job) {
    return {.job = job,
            .listener = lonely_,
            .next = {{.node = 1, .host = "hostb", .ranks = {listeners_[0].card(), listeners_[1].card()}}},
            .previous = {1},
            .inboxes = sender_pages_.inboxes(),
            .far = sender_pages_.far()};
  }
  NodeRing::Args receiver(size_t rank) {
    return {.job = kJob,
            .listener = listeners_[rank],
            .next = {},
            .previous = {0},
            .inboxes = pages_.inboxes(),
            .far = pages_.far()};
  }
  static void until(const std::function<bool()>& done, const std::function<void()>& step) {
    for (int i = 0; i < 600 && !done(); ++i) {
      step();
      usleep(5000);
    }
  }
  bool heard(int64_t step) const { return pages_.inboxes()[0].news.step == step; }
  static NodeNews news(int64_t step) { return {.node = 0, .step = step}; }

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
  until([&] { return heard(5); }, [&] { to.poll(true, news(5)), from.poll(false, {}); });
  EXPECT_TRUE(heard(5));
  EXPECT_GT(pages_.inboxes()[0].received_ms, 0);
  NodeRing once(sender(kJob));
  once.farewell(news(6));
  from.poll(false, {});
  EXPECT_TRUE(heard(6)) << "the last word comes from whoever leads";
}

TEST_F(Ring, ARankThatDoesNotAnswerIsPassedOver) {
  NodeRing to(sender(kJob)), second(receiver(1));  // the first is stopped: it listens, and answers nothing
  until([&] { return heard(9); }, [&] { to.poll(true, news(9)), second.poll(false, {}); });
  EXPECT_TRUE(heard(9));
}

TEST_F(Ring, AnotherJobIsNotListenedTo) {
  NodeRing to(sender(kJob + 1)), from(receiver(0));
  for (int i = 0; i < 50; ++i) to.poll(true, news(5)), from.poll(false, {}), usleep(2000);
  EXPECT_EQ(pages_.inboxes()[0].received_ms, 0);
}

TEST_F(Ring, PagesFollowTheBeatsAndGoOnOnce) {
  NodeRing::Args args = receiver(0);  // passes on what it gets, here to the one that it comes from
  args.next = {{.node = 0, .host = "hosta", .ranks = {lonely_.card()}}};
  NodeRing a(sender(kJob)), b(std::move(args));
  const auto poll = [&] { a.poll(true, news(5)), b.poll(true, {.node = 1, .step = 6}); };
  until([&] { return heard(5) && sender_pages_.inboxes()[0].news.step == 6; }, poll);
  EXPECT_EQ(pages_.far().changes(), 0u) << "in a healthy job there are beats alone";
  EXPECT_FALSE(a.busy());
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(sender_pages_.far().put(report(rank, 5), 1));
  EXPECT_TRUE(a.busy());
  until([&] { return pages_.far().changes() == kRanks && !a.busy() && !b.busy(); }, poll);
  EXPECT_EQ(pages_.far().changes(), kRanks);
  EXPECT_EQ(sender_pages_.far().changes(), kRanks) << "its own come back, and change nothing";
  for (int32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(pages_.far().version(rank), 5);
  sender_pages_.far().put(report(2, 6), 1);
  until([&] { return pages_.far().version(2) == 6; }, poll);
  EXPECT_EQ(pages_.far().changes(), kRanks + 1) << "what is known already is not taken again";
}

// What the listener of rank 0 makes of bytes that anybody may send.
TEST_F(Ring, MalformedBytesAreNotBelieved) {
  struct Head {
    uint64_t magic, job;
    uint32_t form, kind;
    uint64_t bytes;
  };
  NodeRing from(receiver(0));
  const auto give = [&](const Head& head, std::vector<std::byte> body) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(listeners_[0].card().port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    const auto* begin = reinterpret_cast<const std::byte*>(&head);
    body.insert(body.begin(), begin, begin + sizeof(head));
    bool given = false, closed = false;
    until([&] { return closed; },
          [&] {
            given = given || (send(fd, body.data(), body.size(), MSG_NOSIGNAL) == std::ssize(body) &&
                              shutdown(fd, SHUT_WR) == 0);
            from.poll(false, {});
            char byte;
            closed = given && (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN);
          });
    EXPECT_TRUE(closed);
    close(fd);
    return std::make_pair(pages_.far().changes(), from.take_mismatch());
  };
  constexpr uint64_t kMagic = 0x74616562726c6873ULL;
  std::vector<std::byte> body(RankReport::kBytes);
  const Head good{kMagic, kJob, RankReport::kForm, 1, RankReport::kBytes};
  Head head = good;
  EXPECT_EQ(give(head, body), std::make_pair(uint64_t{0}, std::string())) << "zeros are no page";
  encode(report(2, 5), body);
  EXPECT_EQ(give(head, {body.begin(), body.begin() + 500}).first, 0u) << "cut";
  head.magic = 1;
  EXPECT_EQ(give(head, body), std::make_pair(uint64_t{0}, std::string())) << "a stranger";
  head = good;
  head.job = 1;
  EXPECT_EQ(give(head, body), std::make_pair(uint64_t{0}, std::string())) << "another job";
  head = good;
  head.bytes = uint64_t{1} << 60;
  EXPECT_THAT(give(head, body),
              Pair(0u, AllOf(HasSubstr("sends messages of form 2, 1152921504606846976 bytes, where this one reads"),
                             HasSubstr("start the same build of ashlar on all nodes"))));
  head = good;
  head.form = 1;
  EXPECT_EQ(give(head, body), std::make_pair(uint64_t{0}, std::string())) << "said once";
  EXPECT_EQ(give(good, body).first, 1u);
  EXPECT_EQ(pages_.far().version(2), 5);
}

TEST_F(Ring, APortThatIsClosedIsSaidOnce) {
  NodeRing::Args args = sender(kJob);
  for (NodeCard& card : args.next[0].ranks) card.port = 1;
  args.trouble_ms = 200;
  NodeRing to(std::move(args));
  std::string said;
  until([&] { return !said.empty(); }, [&] { to.poll(true, news(5)), said = to.take_trouble(); });
  EXPECT_THAT(said, AllOf(HasSubstr("no beat reaches hostb (tried 127.0.0.1"), HasSubstr("port 1)"),
                          HasSubstr("ASHLAR_WATCH_INTERFACE")));
  to.poll(true, news(5));
  EXPECT_EQ(to.take_trouble(), "");
}

TEST(Listener, AnInterfaceThatIsNotThereIsNamed) {
  EXPECT_GT(NodeListener("").card().count, 0);
  try {
    const NodeListener none("nowhere0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("ASHLAR_WATCH_INTERFACE = nowhere0"));
  }
}

}  // namespace
}  // namespace ashlar::watch
