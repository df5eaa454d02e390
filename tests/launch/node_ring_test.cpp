// Beats between nodes over TCP, here all of one machine.
#include "launch/watch/node_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
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
            .inboxes = sender_pages_.inboxes()};
  }
  NodeRing::Args receiver(size_t rank) {
    return {.job = kJob, .listener = listeners_[rank], .next = {}, .previous = {0}, .inboxes = pages_.inboxes()};
  }
  static void until(const std::function<bool()>& done, const std::function<void()>& step) {
    for (int i = 0; i < 600 && !done(); ++i) {
      step();
      usleep(5000);
    }
  }
  bool heard(int64_t step) const { return pages_.inboxes()[0].news.step == step; }
  static NodeNews news(int64_t step) { return {.node = 0, .step = step}; }

  NodePages sender_pages_{1}, pages_{2};
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
