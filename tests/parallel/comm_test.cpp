// What communicators are made of, on one rank: ranges, sums on each instruction set, the engine, messages to oneself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/self_comm.h"

namespace ashlar::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Ranges, EvenOnesCoverEverythingInMultiples) {
  EXPECT_THAT(even_ranges(10, 3), ElementsAre(Range{0, 4}, Range{4, 8}, Range{8, 10}));
  EXPECT_THAT(even_ranges(1, 3), ElementsAre(Range{0, 1}, Range{1, 1}, Range{1, 1}));
  EXPECT_THAT(even_ranges(0, 2), ElementsAre(Range{0, 0}, Range{0, 0}));
  EXPECT_THAT(even_ranges(100, 3, 16), ElementsAre(Range{0, 48}, Range{48, 96}, Range{96, 100}));
  EXPECT_THAT(even_ranges(20, 3, 16), ElementsAre(Range{0, 16}, Range{16, 20}, Range{20, 20}));
}

TEST(Ranges, EqualOnesLeaveTheRemainderToTheLast) {
  EXPECT_THAT(equal_ranges(100, 3, 16), ElementsAre(Range{0, 32}, Range{32, 64}, Range{64, 100}));
  EXPECT_THAT(equal_ranges(20, 3, 16), ElementsAre(Range{0, 0}, Range{0, 0}, Range{0, 20}));
  EXPECT_THAT(equal_ranges(96, 3, 16), ElementsAre(Range{0, 32}, Range{32, 64}, Range{64, 96}));
  EXPECT_THAT(equal_ranges(0, 2, 64), ElementsAre(Range{0, 0}, Range{0, 0}));
}

TEST(Ranges, ChunksCoverEachRange) {
  const std::vector<Range> ranges = {{3, 13}, {13, 13}, {20, 21}};
  EXPECT_EQ(num_chunks(ranges, 4), 3);
  EXPECT_EQ(num_chunks(std::vector<Range>{{5, 5}}, 4), 0);
  EXPECT_EQ(chunk_of(ranges[0], 0, 4), (Range{3, 7}));
  EXPECT_EQ(chunk_of(ranges[0], 2, 4), (Range{11, 13}));
  EXPECT_EQ(chunk_of(ranges[2], 1, 4).size(), 0);
  EXPECT_THAT(ranges_of_sizes(std::vector<int64_t>{2, 0, 3}), ElementsAre(Range{0, 2}, Range{2, 2}, Range{2, 5}));
}

TEST(Ranges, OverlapAndReachBeyondTheEndAreBugs) {
  check_ranges(std::vector<Range>{{0, 2}, {4, 6}}, 6);
  EXPECT_THROW(check_ranges(std::vector<Range>{{0, 3}, {2, 6}}, 6), Bug);
  EXPECT_THROW(check_ranges(std::vector<Range>{{4, 6}, {0, 2}}, 6), Bug);
  EXPECT_THROW(check_ranges(std::vector<Range>{{0, 7}}, 6), Bug);
  EXPECT_THROW(check_ranges(std::vector<Range>{{3, 2}}, 6), Bug);
}

template <typename T>
class RankOrder : public ::testing::Test {};
using Reducible = ::testing::Types<float, double, BF16, int32_t>;
TYPED_TEST_SUITE(RankOrder, Reducible);

// Against a loop over scalars, for odd sizes and addresses, in place or not.
TYPED_TEST(RankOrder, EachInstructionSetHasTheBitsOfTheLoop) {
  using T = TypeParam;
  using A = std::conditional_t<std::is_same_v<T, BF16>, float, T>;
  for (const RankOrderVariant& variant : rank_order_variants()) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      for (const int64_t count : {1, 2, 3, 4, 5, 8}) {
        for (const int64_t size : {0, 1, 7, 31, 33, 1023, 1024, 1025, 5000}) {
          std::vector<std::vector<T>> memory;
          std::vector<const void*> operands;
          for (int64_t k = 0; k < count; ++k) {
            memory.emplace_back(static_cast<size_t>(size + 3));
            for (int64_t i = 0; i < size + 3; ++i) {
              const auto word = Philox::block(3, static_cast<uint64_t>(k), static_cast<uint64_t>(i));
              const float value = (Philox::uniform(word[0]) - 0.5F) * static_cast<float>(1 << (word[1] % 20));
              memory.back()[static_cast<size_t>(i)] = static_cast<T>(value);
            }
          }
          for (int64_t k = 0; k < count; ++k) operands.push_back(memory[static_cast<size_t>(k)].data() + k % 3);
          std::vector<T> want(static_cast<size_t>(size));
          for (int64_t i = 0; i < size; ++i) {
            A acc = static_cast<A>(static_cast<const T*>(operands[0])[i]);
            for (int64_t k = 1; k < count; ++k) {
              const A x = static_cast<A>(static_cast<const T*>(operands[static_cast<size_t>(k)])[i]);
              acc = op == ReduceOp::kSum ? acc + x : std::max(acc, x);
            }
            want[static_cast<size_t>(i)] = static_cast<T>(acc);
          }
          const int64_t own = count / 2;  // in place: over one of the operands
          T* out = memory[static_cast<size_t>(own)].data() + own % 3;
          variant.reduce({.operands = operands, .out = out, .size = size, .dtype = DTypeOf<T>::value, .op = op});
          ASSERT_TRUE(size == 0 || std::memcmp(want.data(), out, static_cast<size_t>(size) * sizeof(T)) == 0)
              << variant.name << ", " << count << " operands of " << size;
        }
      }
    }
  }
}

TEST(RankOrderSpecial, NaNsOverflowAndUnknownDtypes) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const RankOrderVariant& variant : rank_order_variants()) {
    std::vector<float> a(40, 1.0F), b(40, kNan), out(40);
    for (const auto& [first, second] : {std::pair{a.data(), b.data()}, std::pair{b.data(), a.data()}}) {
      const std::vector<const void*> operands = {first, second, a.data()};
      variant.reduce({.operands = operands, .out = out.data(), .size = 40, .op = ReduceOp::kMax});
      for (const float value : out) EXPECT_TRUE(std::isnan(value)) << variant.name;
    }
    // Beyond int32 on the way, but not at the end.
    std::vector<int32_t> most(3, std::numeric_limits<int32_t>::max()), minus(3, -7), sums(3);
    std::vector<const void*> operands = {most.data(), most.data(), minus.data()};
    const RankOrderReduce args{
        .operands = operands, .out = sums.data(), .size = 3, .dtype = DType::kInt32, .op = ReduceOp::kSum};
    EXPECT_THROW(variant.reduce(args), Bug);
    minus.assign(3, std::numeric_limits<int32_t>::min());
    variant.reduce(args);
    EXPECT_THAT(sums, ElementsAre(2147483646, 2147483646, 2147483646));
    EXPECT_THROW(variant.reduce({.operands = operands, .out = sums.data(), .size = 3, .dtype = DType::kUInt8}), Bug);
  }
}

MutView view_of(std::vector<float>& x) {
  const auto size = static_cast<int64_t>(x.size());
  return {x.data(), DType::kFloat32, 1, size, size};
}

TEST(SelfMessages, WaitingForOneThatWasNeverIssuedIsABug) {
  SelfComm comm("self");
  SynchronousStream stream;
  std::vector<float> x(4);
  Work recv = comm.recv({.data = view_of(x), .from = 0}, stream);
  EXPECT_FALSE(recv.done());
  try {
    recv.wait();
    FAIL() << "nothing was sent";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(), HasSubstr("recv fp32[4] from 0 on self, operation 0"));
  }
  std::vector<float> y(4, 2.0F);
  comm.send({.data = view_of(y), .to = 0}, stream).wait();
  recv.wait();
  EXPECT_THAT(x, ElementsAre(2, 2, 2, 2));
}

TEST(SelfMessages, SizesMustAgree) {
  SelfComm comm("self");
  SynchronousStream stream;
  std::vector<float> x(4), y(5);
  Work send = comm.send({.data = view_of(x), .to = 0}, stream);
  EXPECT_THROW(comm.recv({.data = view_of(y), .from = 0}, stream).wait(), Bug);
  // The send has lost its partner; a dropped handle must not wait for it for ever.
}

TEST(Engine, ASecondThreadIsABug) {
  SelfComm comm("self");
  SynchronousStream stream;
  std::vector<float> x(4);
  Work recv = comm.recv({.data = view_of(x), .from = 0}, stream);
  bool thrown = false;
  std::thread other([&] {
    try {
      comm.progress();
    } catch (const Bug&) {
      thrown = true;
    }
  });
  other.join();
  EXPECT_TRUE(thrown);
  comm.send({.data = view_of(x), .to = 0}, stream).wait();
}

TEST(Engine, AnExceptionOnItsWayGivesUpCommunication) {
  SelfComm comm("self");
  SynchronousStream stream;
  std::vector<float> x(4), y(4);
  EXPECT_THROW(
      {
        const Work first = comm.recv({.data = view_of(x), .from = 0}, stream);
        const Work second = comm.recv({.data = view_of(y), .from = 0}, stream);
        throw std::runtime_error("elsewhere");
      },
      std::runtime_error);
  EXPECT_TRUE(comm.engine()->abandoned());
  EXPECT_TRUE(comm.engine()->idle());
  EXPECT_THROW(comm.send({.data = view_of(x), .to = 0}, stream).wait(), Bug);
}

TEST(Engine, WhatADestructorSwallowedIsThrownByTheNextCall) {
  SelfComm comm("self");
  SynchronousStream stream;
  std::vector<float> x(4);
  {
    const Work lost = comm.recv({.data = view_of(x), .from = 0}, stream);
  }  // waits for nobody: a Bug that cannot be thrown
  EXPECT_THROW(comm.progress(), Bug);
}

TEST(Engine, AnObserverIsToldOfEachOperation) {
  std::vector<std::string> seen;
  SelfComm comm("self");
  SynchronousStream stream;
  comm.engine()->observe(
      [&](const OperationInfo& info, std::string_view name) { seen.push_back(describe(info, name)); });
  std::vector<float> x(4), y(4);
  comm.all_reduce({.in = view_of(x), .out = view_of(x), .op = ReduceOp::kMax}, stream).wait();
  comm.broadcast({.data = view_of(x)}, stream).wait();
  comm.send_recv({.send = view_of(x), .to = 0, .recv = view_of(y), .from = 0}, stream).wait();
  comm.barrier(stream).wait();
  EXPECT_EQ(seen,
            (std::vector<std::string>{
                "all_reduce max fp32[4] on self, operation 0", "broadcast fp32[4] from root 0 on self, operation 1",
                "send_recv fp32[4] to 0, fp32[4] from 0 on self, operation 2", "barrier on self, operation 3"}));
  comm.engine()->observe(nullptr);
  comm.barrier(stream).wait();
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Bootstrap, WithoutALauncherThereIsOneRank) {
  for (const char* sign : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PALS_RANKID"}) {
    ASSERT_EQ(std::getenv(sign), nullptr);
    setenv(sign, "1", 1);
    EXPECT_TRUE(launched_by_mpi()) << sign;
    unsetenv(sign);
  }
  EXPECT_FALSE(launched_by_mpi());
  Bootstrap bootstrap;
  EXPECT_EQ(bootstrap.world().size(), 1);
  EXPECT_EQ(bootstrap.world().name(), "world");
  EXPECT_EQ(bootstrap.local_size(), 1);
  EXPECT_EQ(bootstrap.local_rank(), 0);
  EXPECT_FALSE(Bootstrap::host_name().empty());
}

}  // namespace
}  // namespace ashlar::comm
