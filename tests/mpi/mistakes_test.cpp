// Calls that cannot be right: a Bug, never a hang or a wrong number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "parallel/comm/host.h"
#include "tests/mpi/communicators.h"
#include "tests/mpi/operands.h"
#include "tests/support/thrown.h"

namespace ashlar::testing {
namespace {

using comm::Range;
using comm::ReduceOp;
using comm::Work;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Mistakes : public OnEachKind {};

TEST_P(Mistakes, ArgumentsThatDoNotFit) {
  Buffer<float> x(64 * ranks_), y(64 * ranks_);
  Buffer<double> z(64 * ranks_);
  Buffer<uint8_t> bytes(8);
  MutView rows{x.data(), DType::kFloat32, 4, 8, 16};
  const auto all_reduce = [&](ConstView in, MutView out, ReduceOp op = ReduceOp::kSum) {
    return bug_of([&] { comm_->all_reduce({.in = in, .out = out, .op = op}, stream_).wait(); });
  };
  EXPECT_THAT(all_reduce(x.view(), z.view()), HasSubstr("in is fp32, out is fp64"));
  EXPECT_THAT(all_reduce(x.view(0, 4), y.view(0, 5)), HasSubstr("in has 4 elements, out 5"));
  EXPECT_THAT(all_reduce(rows, rows), HasSubstr("16 apart, expected contiguous rows"));
  EXPECT_THAT(all_reduce(x.view(0, 8), x.view(4, 12)), HasSubstr("overlap"));
  EXPECT_THAT(all_reduce(x.view(), y.view(), ReduceOp{}), HasSubstr("expected .op"));
  EXPECT_THAT(all_reduce(bytes.view(), bytes.view()), HasSubstr("for a reduction, got uint8"));
  EXPECT_THAT(all_reduce({nullptr, DType::kFloat32, 1, 4, 4}, y.view(0, 4)), HasSubstr("has no memory"));

  const std::vector<Range> too_few(static_cast<size_t>(ranks_ - 1), Range{0, 0});
  std::vector<Range> outside(static_cast<size_t>(ranks_), Range{0, 0});
  outside.back() = {0, 64 * ranks_ + 1};
  const auto scatter = [&](ConstView in, MutView out, std::span<const Range> parts = {}) {
    return bug_of([&] { comm_->reduce_scatter({.in = in, .out = out, .parts = parts}, stream_).wait(); });
  };
  if (ranks_ > 1) {
    EXPECT_THAT(scatter(x.view(0, 64 * ranks_ - 1), y.view(0, 63)), HasSubstr("equal parts; give parts"));
    EXPECT_THAT(scatter(x.view(), y.view(0, 1), too_few), HasSubstr("parts for"));
  }
  EXPECT_THAT(scatter(x.view(), y.view(0, 63)), HasSubstr("out has 63 elements, this rank's part 64"));
  EXPECT_THAT(scatter(x.view(), y.view(0, 64), outside), HasSubstr("expected it between"));
  EXPECT_THAT(bug_of([&] { comm_->all_gather({.in = x.view(0, 63), .out = y.view()}, stream_).wait(); }),
              HasSubstr("in has 63 elements, this rank's part 64"));
  const std::vector<Range> nothing(static_cast<size_t>(ranks_), Range{0, 0});
  std::vector<int64_t> own_sizes(static_cast<size_t>(ranks_), 0);
  own_sizes[static_cast<size_t>(rank_)] = 3;
  const std::vector<Range> own = comm::ranges_of_sizes(own_sizes);
  const auto all_to_all = [&](ConstView send, MutView recv, std::span<const Range> send_parts = {},
                              std::span<const Range> recv_parts = {}) {
    return bug_of([&] {
      comm_->all_to_all({.send = send, .recv = recv, .send_parts = send_parts, .recv_parts = recv_parts}, stream_)
          .wait();
    });
  };
  EXPECT_THAT(all_to_all(x.view(), z.view()), HasSubstr("in is fp32, out is fp64"));
  EXPECT_THAT(all_to_all(x.view(), x.view()), HasSubstr("overlap"));
  EXPECT_THAT(all_to_all(x.view(), y.view(), outside, outside), HasSubstr("expected it between"));
  EXPECT_THAT(all_to_all(x.view(), y.view(), nothing, outside), HasSubstr("expected it between"));
  EXPECT_THAT(all_to_all(x.view(), y.view(), own, nothing),
              HasSubstr(str_cat("rank ", rank_, " sends itself 3 elements and receives 0")));
  if (ranks_ > 1) {
    EXPECT_THAT(all_to_all(x.view(0, 64 * ranks_ - 1), y.view()), HasSubstr("equal parts; give parts"));
    EXPECT_THAT(all_to_all(x.view(), y.view(), nothing, too_few), HasSubstr("parts for"));
  }
  for (const int peer : {-1, ranks_}) {
    EXPECT_THAT(bug_of([&] { comm_->send({.data = x.view(), .to = peer}, stream_).wait(); }), HasSubstr("ranks"));
    EXPECT_THAT(bug_of([&] { comm_->recv({.data = x.view(), .from = peer}, stream_).wait(); }), HasSubstr("ranks"));
    EXPECT_THAT(bug_of([&] { comm_->broadcast({.data = x.view(), .root = peer}, stream_).wait(); }),
                HasSubstr("ranks"));
  }
  EXPECT_THAT(bug_of([&] {
                comm_->send_recv({.send = x.view(0, 8), .to = 0, .recv = x.view(7, 9), .from = 0}, stream_).wait();
              }),
              HasSubstr("overlap"));
  // None of these reached the other ranks: all still work together.
  EXPECT_EQ(comm::sum_of(control_, int64_t{1}), ranks_);
}

INSTANTIATE_TEST_SUITE_P(Comm, Mistakes, each_kind(), kind_name);

// Without CheckedComm, too, a message of another size is never taken for the one that was expected.
TEST(MessageSize, AnotherThanExpectedIsABug) {
  const auto comm = make_communicator(Kind::kWorld);
  SynchronousStream stream;
  if (comm->size() < 2) return;
  for (const auto& [sent, expected] : {std::pair<int64_t, int64_t>{4, 8}, {8, 4}, {100000, 100001}}) {
    Buffer<float> x(sent, 0), y(expected);
    if (comm->rank() == 0) comm->send({.data = x.view(), .to = 1}, stream).wait();
    if (comm->rank() == 1) {
      EXPECT_THAT(bug_of([&] { comm->recv({.data = y.view(), .from = 0}, stream).wait(); }),
                  AllOf(HasSubstr("rank 0 sent"), HasSubstr("issued different operations")));
      EXPECT_TRUE(y.guards_hold());
    }
  }
}

TEST(MessageSize, AnotherOfAnAllToAllThanExpectedIsABug) {
  const auto comm = make_communicator(Kind::kWorld);
  SynchronousStream stream;
  if (comm->size() < 2) return;
  Buffer<float> x(100, comm->rank()), y(100);
  const auto parts = [&](int64_t between) {  // of ranks 0 and 1
    std::vector<int64_t> sizes(static_cast<size_t>(comm->size()), 0);
    if (comm->rank() < 2) sizes[static_cast<size_t>(1 - comm->rank())] = between;
    return comm::ranges_of_sizes(sizes);
  };
  if (comm->rank() > 1) return;
  const std::vector<Range> sent = parts(comm->rank() == 0 ? 8 : 4), received = parts(4);
  const auto exchange = [&] {
    comm->all_to_all({.send = x.view(), .recv = y.view(), .send_parts = sent, .recv_parts = received}, stream).wait();
  };
  if (comm->rank() == 0) exchange();
  if (comm->rank() == 1) {
    EXPECT_THAT(bug_of(exchange), AllOf(HasSubstr("rank 0 sent"), HasSubstr("issued different operations")));
    EXPECT_TRUE(y.guards_hold());
  }
}

// Each case is what rank 0 issues and what the others issue; all of them get a Bug that names both.
class Mismatch : public ::testing::Test {
 protected:
  using Issue = std::function<Work(comm::Communicator&)>;

  void expect(const Issue& first, const Issue& others, const std::string& first_text, const std::string& others_text) {
    const auto comm = make_communicator(Kind::kChecked);
    if (comm->size() < 2) return;
    const bool is_first = comm->rank() == 0;
    const std::string text = bug_of([&] { (is_first ? first : others)(*comm).wait(); });
    if (is_first) {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("[comm] rank 0 issued " + first_text), HasSubstr("; rank 1 issued " + others_text)));
    } else {
      EXPECT_THAT(text, AllOf(HasSubstr(str_cat("[comm] rank ", comm->rank(), " issued ", others_text)),
                              HasSubstr("; rank 0 issued " + first_text)));
    }
  }

  Issue all_reduce(int64_t size, ReduceOp op = ReduceOp::kSum) {
    return [=, this](comm::Communicator& c) {
      return c.all_reduce({.in = x_.view(0, size), .out = y_.view(0, size), .op = op}, stream_);
    };
  }

  // To and from each other rank; nothing stays.
  Issue exchange(int64_t sent, int64_t received) {
    return [=, this](comm::Communicator& c) {
      const auto parts_of = [&](int64_t size) {
        std::vector<int64_t> sizes(static_cast<size_t>(c.size()), size);
        sizes[static_cast<size_t>(c.rank())] = 0;
        return comm::ranges_of_sizes(sizes);
      };
      const std::vector<Range> sent_parts = parts_of(sent), received_parts = parts_of(received);
      return c.all_to_all(
          {.send = x_.view(0, 50), .recv = y_.view(0, 51), .send_parts = sent_parts, .recv_parts = received_parts},
          stream_);
    };
  }

  SynchronousStream stream_;
  Buffer<float> x_{100}, y_{100};
  Buffer<BF16> half_{100};
};

TEST_F(Mismatch, SizeKindDtypeReductionRootAndParts) {
  expect(all_reduce(8), all_reduce(9), "all_reduce sum fp32[8] on checked", "all_reduce sum fp32[9] on checked");
  expect(all_reduce(8), all_reduce(8, ReduceOp::kMax), "all_reduce sum fp32[8]", "all_reduce max fp32[8]");
  expect(
      all_reduce(8), [&](comm::Communicator& c) { return c.barrier(stream_); }, "all_reduce sum fp32[8]", "barrier");
  expect(
      all_reduce(8),
      [&](comm::Communicator& c) {
        return c.all_reduce({.in = half_.view(0, 8), .out = half_.view(0, 8), .op = ReduceOp::kSum}, stream_);
      },
      "all_reduce sum fp32[8]", "all_reduce sum bf16[8]");
  expect([&](comm::Communicator& c) { return c.broadcast({.data = x_.view(), .root = 0}, stream_); },
         [&](comm::Communicator& c) { return c.broadcast({.data = x_.view(), .root = 1}, stream_); },
         "broadcast fp32[100] from root 0", "broadcast fp32[100] from root 1");
  const auto gather = [&](int64_t extra) {
    return [this, extra](comm::Communicator& c) {
      std::vector<int64_t> sizes(static_cast<size_t>(c.size()), 2);
      sizes[0] += extra;
      sizes[1] += 1 - extra;
      const std::vector<Range> parts = comm::ranges_of_sizes(sizes);
      const Range mine = parts[static_cast<size_t>(c.rank())];
      return c.all_gather({.in = x_.view(0, mine.size()), .out = y_.view(0, parts.back().end), .parts = parts},
                          stream_);
    };
  };
  expect(gather(0), gather(1), "all_gather fp32", "all_gather fp32");
  expect(exchange(2, 3), exchange(4, 2), "all_to_all fp32[2] to ",
         "all_to_all fp32[4] to 0, fp32[2] from 0 on checked");
  expect(exchange(2, 2), all_reduce(8), "all_to_all fp32[2] to ", "all_reduce sum fp32[8]");
}

// Two ranks only: messages concern nobody else.
TEST_F(Mismatch, Messages) {
  comm::Communicator& world = bootstrap().world();
  if (world.size() < 2) return;
  const auto pair = world.split({.color = world.rank() < 2 ? 0 : -1, .key = world.rank(), .name = "pair"});
  if (pair == nullptr) return;
  const bool first = pair->rank() == 0;
  const int peer = 1 - pair->rank();
  const auto fresh = [&] {
    return comm::CheckedComm(pair->split({.color = 0, .key = pair->rank(), .name = "checked"}));
  };
  {
    comm::CheckedComm checked = fresh();
    const std::string text = bug_of([&] {
      (first ? checked.send({.data = x_.view(0, 8), .to = peer}, stream_)
             : checked.recv({.data = y_.view(0, 9), .from = peer}, stream_))
          .wait();
    });
    EXPECT_THAT(text, AllOf(HasSubstr("send fp32[8] to 1 on checked"), HasSubstr("recv fp32[9] from 0 on checked")));
  }
  {
    comm::CheckedComm checked = fresh();
    const std::string text = bug_of([&] { checked.send({.data = x_.view(), .to = peer}, stream_).wait(); });
    EXPECT_THAT(text, AllOf(HasSubstr("send fp32[100] to 1"), HasSubstr("send fp32[100] to 0"))) << "crossing sends";
  }
  {
    comm::CheckedComm checked = fresh();
    const std::string text = bug_of(
        [&] { (first ? checked.send({.data = x_.view(), .to = peer}, stream_) : all_reduce(8)(checked)).wait(); });
    EXPECT_THAT(text, AllOf(HasSubstr("send fp32[100] to 1"), HasSubstr("all_reduce sum fp32[8]")));
  }
  {
    comm::CheckedComm checked = fresh();
    const std::string text = bug_of([&] {
      checked.send_recv({.send = x_.view(0, 5), .to = peer, .recv = y_.view(0, first ? 5 : 6), .from = peer}, stream_)
          .wait();
    });
    EXPECT_THAT(text, AllOf(HasSubstr("send_recv fp32[5] to 1, fp32[5] from 1"),
                            HasSubstr("send_recv fp32[5] to 0, fp32[6] from 0")));
  }
  {
    comm::CheckedComm checked = fresh();
    const std::string text = bug_of([&] { (first ? exchange(2, 3) : exchange(4, 2))(checked).wait(); });
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 issued all_to_all fp32[2] to 1, fp32[3] from 1 on checked"),
                            HasSubstr("rank 1 issued all_to_all fp32[4] to 0, fp32[2] from 0 on checked")));
    EXPECT_THAT(checked.last_operation(), HasSubstr("all_to_all fp32[50] sent, fp32[51] received on checked"));
  }
}

}  // namespace
}  // namespace ashlar::testing
