// What nodes tell each other of their ranks when a job hangs: the message, and the memory that keeps it.
#include "launch/watch/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <string>
#include <vector>

#include "launch/watch/hang_detector.h"
#include "launch/watch/node_pages.h"

namespace ashlar::watch {
namespace {

constexpr int64_t kRanks = 8;

RankReport report_of(int32_t rank, int64_t version = 1000) {
  RankReport report{.version = version, .state = 'D', .answers = false};
  std::string("its saver thread is in fsync of x").copy(report.stall.data(), 200);
  RankPage& page = report.page;
  page = {.phase = Phase::kSaving,
          .machine = 99,
          .rank = rank,
          .ranks = kRanks,
          .pid = 4711,
          .micro_batch = 3,
          .at = {1, 2, 0, 3, 4},
          .waiting = 1,
          .step = 17,
          .operations = 1'000'005};
  std::string("node7").copy(page.host.data(), 10);
  for (size_t i = 0; i < page.recent.size(); ++i) {
    page.recent[i].info = {.kind = comm::OperationKind::kSendRecv,
                           .op = comm::ReduceOp::kMax,
                           .dtype = DType::kBFloat16,
                           .size = static_cast<int64_t>(i) << 40,
                           .peer = 5,
                           .recv_dtype = DType::kInt64,
                           .recv_size = 12,
                           .recv_peer = 6,
                           .number = 1'000'000 + i};
    std::string("losses").copy(page.recent[i].info.label.data(), 20);
    std::string("pipeline").copy(page.recent[i].communicator.data(), 20);
  }
  return report;
}
std::vector<std::byte> message_of(const RankReport& report) {
  std::vector<std::byte> message(RankReport::kBytes);
  encode(report, message);
  return message;
}

TEST(RankReport, ArrivesAsItWasSent) {
  const RankReport sent = report_of(6);
  const auto got = decode(message_of(sent), kRanks);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->version, 1000);
  EXPECT_EQ(got->state, 'D');
  EXPECT_FALSE(got->answers);
  EXPECT_FALSE(got->printed);
  EXPECT_STREQ(got->stall.data(), sent.stall.data());
  EXPECT_EQ(message_of(*got), message_of(sent)) << "all other fields";
  EXPECT_EQ(got->page.machine, 99u);
  EXPECT_EQ(got->page.at, sent.page.at);
  for (size_t i = 0; i < RankPage::kRecords; ++i) {
    const OperationRecord &a = got->page.recent[i], &b = sent.page.recent[i];
    EXPECT_EQ(comm::describe(a.info, a.communicator.data()), comm::describe(b.info, b.communicator.data()));
  }
  EXPECT_LT(RankReport::kBytes, 2048u) << "the stacks stay where they are";
}

TEST(RankReport, WhatIsCutOrDamagedIsNotBelieved) {
  std::vector<std::byte> message = message_of(report_of(6));
  for (size_t size = 0; size < message.size(); size += 7)
    EXPECT_FALSE(decode(std::span(message).first(size), kRanks)) << size;
  for (std::byte& byte : message) {
    byte ^= std::byte{0x10};
    EXPECT_FALSE(decode(message, kRanks));
    byte ^= std::byte{0x10};
  }
  message.push_back({});
  EXPECT_FALSE(decode(message, kRanks));
  std::mt19937 random(1);
  message.resize(RankReport::kBytes);
  for (int i = 0; i < 100; ++i) {
    for (std::byte& byte : message) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(decode(message, kRanks));
  }
}

// Valid in form: the sum is right.
TEST(RankReport, ValuesThatNoRankHasAreNotBelieved) {
  const std::vector<void (*)(RankReport&)> changes = {
      [](RankReport& r) { r.version = 0; },
      [](RankReport& r) { r.page.rank = -1; },
      [](RankReport& r) { r.page.rank = kRanks; },
      [](RankReport& r) { r.page.ranks = kRanks + 1; },
      [](RankReport& r) { r.page.phase = static_cast<Phase>(200); },
      [](RankReport& r) { r.page.state = static_cast<RankState>(9); },
      [](RankReport& r) { r.page.recent[3].info.kind = static_cast<comm::OperationKind>(77); },
      [](RankReport& r) { r.page.recent[4].info.op = static_cast<comm::ReduceOp>(3); },
      [](RankReport& r) { r.page.recent[15].info.dtype = static_cast<DType>(6); },
      [](RankReport& r) { r.page.recent[0].info.recv_dtype = static_cast<DType>(255); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    RankReport report = report_of(2);
    ASSERT_TRUE(decode(message_of(report), kRanks));
    changes[i](report);
    EXPECT_FALSE(decode(message_of(report), kRanks)) << i;
  }
}

TEST(RankReport, TextsEndAndAreHarmless) {
  RankReport report = report_of(2);
  report.state = '\x1b';
  report.stall.fill('x');
  report.page.host.fill('\x1b');
  report.page.recent[0].communicator.fill('\n');
  report.page.recent[0].info.label.fill('y');
  const auto got = decode(message_of(report), kRanks);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->state, '?');
  EXPECT_EQ(std::string(got->stall.data()), std::string(255, 'x'));
  EXPECT_EQ(std::string(got->page.host.data()), std::string(63, '?'));
  EXPECT_EQ(std::string(got->page.recent[0].communicator.data()), std::string(23, '?'));
  EXPECT_EQ(std::string(got->page.recent[0].info.label.data()), std::string(23, 'y'));
}

TEST(RemotePages, KeepTheNewestOfEachRank) {
  const NodePages pages(2, kRanks), alone(2);
  EXPECT_EQ(alone.remote().ranks(), 0);
  EXPECT_EQ(alone.remote().changes(), 0u);
  const RemotePages remote = pages.remote();
  EXPECT_EQ(remote.ranks(), kRanks);
  EXPECT_FALSE(remote.has(6, 0));
  EXPECT_FALSE(remote.get(6, 0));
  EXPECT_TRUE(remote.put(report_of(6, 10), 500));
  EXPECT_EQ(remote.changes(), 1u);
  EXPECT_FALSE(remote.put(report_of(6, 10), 600)) << "it has gone round";
  EXPECT_FALSE(remote.put(report_of(6, 9), 600));
  EXPECT_EQ(remote.changes(), 1u);
  EXPECT_TRUE(remote.has(6, 499));
  EXPECT_FALSE(remote.has(6, 500)) << "of a hang before";
  EXPECT_FALSE(remote.get(6, 500));
  EXPECT_FALSE(remote.get(5, 0));
  ASSERT_TRUE(remote.get(6, 499));
  EXPECT_EQ(remote.get(6, 499)->page.step, 17);
  EXPECT_TRUE(remote.put(report_of(6, 11), 700));
  EXPECT_EQ(remote.version(6), 11);
  const auto shared = NodePages::open(getpid(), pages.fd(), 2, kRanks);
  ASSERT_TRUE(shared);
  EXPECT_TRUE(shared->remote().get(6, 0));
  EXPECT_EQ(NodePages::open(getpid(), pages.fd(), 2), nullptr) << "another job";
}

TEST(RemotePages, TakeNoMemoryBeforeAHang) {
  const NodePages pages(1, 100'000);
  struct stat info {};
  ASSERT_EQ(fstat(pages.fd(), &info), 0);
  EXPECT_GT(info.st_size, 100'000'000);
  EXPECT_EQ(pages.remote().changes(), 0u);
  ASSERT_EQ(fstat(pages.fd(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 64 << 10);
}

// Two nodes that stopped at once, and hear each other late: by age alone the news would stay young for ever.
TEST(HangNews, GrowOldAsTheyGoRound) {
  constexpr int64_t kBegin = 1'000'000, kBeat = 100, kLate = 90;
  struct Node {
    NodePages pages{1};
    FlightRecorder recorder{pages.pages()[0], {.rank = 0, .ranks = 2}, nullptr};
    io::LineWriter errors{STDERR_FILENO};
    HangDetector watch{{.recorder = recorder, .pages = pages.pages(), .remote = {}, .nodes = {}, .errors = errors}};
  };
  Node nodes[2];
  for (Node& node : nodes) publish(node.recorder.page().progress_ms, kBegin);
  publish(nodes[1].recorder.page().longest_step_ms, int64_t{777});
  NodeStatus status[2];
  const auto go_on = [&](int64_t from, int64_t to) {
    for (int64_t now = from; now < to; now += kBeat) {
      for (size_t i : {0, 1}) {
        nodes[i].watch.receive(nodes[i].pages.inboxes(), now);
        nodes[i].watch.fill(status[i], now);
      }
      for (size_t i : {0, 1}) nodes[i].pages.inboxes()[0] = {.received_ms = now + kLate, .status = status[1 - i]};
    }
  };
  go_on(kBegin, kBegin + 60'000);
  for (const NodeStatus& of : status) {
    EXPECT_GE(of.progress.age_ms, 60'000 - kBeat - 2 * kLate);
    EXPECT_LE(of.progress.age_ms, 60'000);
    EXPECT_EQ(of.stall.age_ms, kNoStall);
    EXPECT_EQ(of.longest_ms, 777) << "of any rank";
  }
  publish(nodes[1].recorder.page().progress_ms, kBegin + 60'000);
  go_on(kBegin + 60'000, kBegin + 62'000);
  for (const NodeStatus& of : status) EXPECT_LE(of.progress.age_ms, 2'000) << "what one does, the other hears";
}

}  // namespace
}  // namespace ashlar::watch
