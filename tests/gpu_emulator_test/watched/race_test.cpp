// Mistakes that nothing but the order of accesses shows: each is reported, whatever the schedule, with both lines; the
// right form of the same kernel passes under every schedule.
#include <fstream>

#include "tests/gpu_emulator_test/watched/kernels.h"
#include "tests/gpu_emulator_test/watched/watched_test.h"

namespace ashlar::instrumented {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// The place of the line with that comment in kernels.cpp.
std::string marked(const std::string& mark) {
  std::ifstream file(ASHLAR_SOURCE_DIR "/tests/gpu_emulator_test/watched/kernels.cpp");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find("// [" + mark + "]") != std::string::npos) return str_cat("kernels.cpp:", number);
  }
  ADD_FAILURE() << "no line is marked " << mark;
  return "";
}

template <typename Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const emulator::Error& error) {
    return error.what();
  }
  return "";
}

class Races : public testing::Watched {
 protected:
  template <typename... Params, typename... Args>
  void expect_right(const testing::Shape& shape, void (*kernel)(Params...), Args... args) {
    for (const emulator::Schedule& schedule : testing::schedules()) {
      EXPECT_NO_THROW(run(schedule, shape, kernel, args...)) << policy_name(schedule.policy) << " " << schedule.seed;
    }
  }
};

TEST_F(Races, ReadBeforeBarrier) {
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_before_barrier<false>, out),
              AllOf(HasSubstr("race: "), HasSubstr("shared memory"), HasSubstr(marked("raw: write")),
                    HasSubstr(marked("raw: read"))));
  expect_right({.block = 64}, read_before_barrier<true>, out);
}

TEST_F(Races, WriteBeforeAllHaveRead) {
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, write_before_all_have_read<false>, out),
              AllOf(HasSubstr("race: "), HasSubstr(marked("war: write")), HasSubstr(marked("war: read"))));
  expect_right({.block = 64}, write_before_all_have_read<true>, out);
}

TEST_F(Races, AllWriteOnePlace) {
  auto* out = device<float>(64);
  const std::string line = marked("waw");
  EXPECT_THAT(fault({.block = 64}, all_write_one_place<false>, out),
              AllOf(HasSubstr("race: writes shared"), HasSubstr(line + "] race"), HasSubstr("writes at " + line)));
  expect_right({.block = 64}, all_write_one_place<true>, out);
}

TEST_F(Races, MissingSyncwarp) {
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_without_syncwarp<false>, out),
              AllOf(HasSubstr("race: "), HasSubstr(marked("warp: write")), HasSubstr(marked("warp: read"))));
  expect_right({.block = 64}, read_without_syncwarp<true>, out);
}

TEST_F(Races, SyncwarpOfHalfAWarp) {
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, syncwarp_of_half<false>, out), HasSubstr("race: "));
  expect_right({.block = 64}, syncwarp_of_half<true>, out);
}

TEST_F(Races, SharedSumsFilledAgainTooEarly) {
  auto* out = device<float>(128);
  EXPECT_THAT(fault({.block = 128}, reduce_by_shuffles<false>, out), HasSubstr("race: "));
  expect_right({.block = 128}, reduce_by_shuffles<true>, out);
}

TEST_F(Races, LdmatrixBeforeBarrier) {
  auto* out = device<uint32_t>(64);
  EXPECT_THAT(fault({.block = 64}, ldmatrix_before_barrier<false>, out),
              AllOf(HasSubstr("race: "), HasSubstr(marked("ldmatrix: write")), HasSubstr(marked("ldmatrix: read"))));
  expect_right({.block = 64}, ldmatrix_before_barrier<true>, out);
}

TEST_F(Races, CopyReadBeforeItIsWaitedFor) {
  auto* from = device<float>(64);
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_before_copy_is_waited_for<false>, from, out),
              AllOf(HasSubstr("race: "), HasSubstr(marked("copy")), HasSubstr(marked("copy: read"))));
  expect_right({.block = 64}, read_before_copy_is_waited_for<true>, from, out);
}

TEST_F(Races, CopyOfOthersReadWithoutBarrier) {
  auto* from = device<float>(64);
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_copy_of_others_without_barrier<false>, from, out), HasSubstr("race: "));
  expect_right({.block = 64}, read_copy_of_others_without_barrier<true>, from, out);
}

TEST_F(Races, StageRefilledTooEarly) {
  auto* from = device<float>(64);
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, refill_too_early<false>, from, out), HasSubstr("race: "));
  expect_right({.block = 64}, refill_too_early<true>, from, out);
}

TEST_F(Races, NamedBarrierPassedOver) {
  auto* out = device<float>(32);
  EXPECT_THAT(fault({.block = 64}, take_without_bar_sync<false>, out), HasSubstr("race: "));
  expect_right({.block = 64}, take_without_bar_sync<true>, out);
}

TEST_F(Races, MbarrierPassedOver) {
  auto* out = device<float>(32);
  EXPECT_THAT(fault({.block = 64}, take_without_mbarrier<false>, out), HasSubstr("race: "));
  expect_right({.block = 64}, take_without_mbarrier<true>, out);
}

TEST_F(Races, RefillWithoutTheEmptyMbarrier) {
  auto* out = device<float>(32);
  EXPECT_THAT(fault({.block = 64}, make_without_empty_mbarrier<false>, out), HasSubstr("race: "));
  expect_right({.block = 64}, make_without_empty_mbarrier<true>, out);
}

TEST_F(Races, BlocksWriteOnePlace) {
  auto* out = device<float>(8);
  const std::string line = marked("blocks: write");
  EXPECT_THAT(fault({.grid = 8}, blocks_write_one_place<false>, out),
              AllOf(HasSubstr("race: writes global"), HasSubstr("of another block writes at " + line)));
  expect_right({.grid = 8}, blocks_write_one_place<true>, out);
}

TEST_F(Races, BlockReadsWhatAnotherOneWrites) {
  auto* values = device<float>(8 * 32);
  auto* out = device<float>(8 * 32);
  EXPECT_THAT(fault({.grid = 8}, read_from_other_block<false>, values, out),
              AllOf(HasSubstr("race: "), HasSubstr("of another block")));
  expect_right({.grid = 8}, read_from_other_block<true>, values, out);
}

TEST_F(Races, LastBlockNeedsFences) {
  auto* in = device<float>(8 * 64);
  auto* partial = device<float>(8 * 64);
  auto* out = device<float>(8 * 64);
  auto* ticket = device<unsigned>(1);
  const auto wrong = [&](auto kernel) {
    for (const emulator::Schedule& schedule : testing::schedules()) {
      *ticket = 0;  // a fault leaves it anywhere
      const std::string error =
          error_of([&] { run(schedule, {.grid = 8, .block = 64}, kernel, in, partial, ticket, out); });
      EXPECT_THAT(error, AllOf(HasSubstr("race: "), HasSubstr(marked("last block: write")),
                               HasSubstr(marked("last block: read"))));
    }
  };
  wrong(sum_by_last_block<Fencing::kNone>);
  wrong(sum_by_last_block<Fencing::kOfBlockOnly>);
  const auto right = [&](auto kernel) {
    *ticket = 0;
    expect_right({.grid = 8, .block = 64}, kernel, in, partial, ticket, out);
    EXPECT_EQ(*ticket, 0U);
  };
  right(sum_by_last_block<Fencing::kByFirstThread>);
  right(sum_by_last_block<Fencing::kByAll>);
  right(sum_by_last_block<Fencing::kInWarp>);
}

TEST_F(Races, AtomicsRaceWithPlainReads) {
  auto* in = device<int>(4 * 64);
  std::fill_n(in, 4 * 64, 0);
  auto* counts = device<unsigned>(8);
  auto* out = device<unsigned>(4 * 64);
  EXPECT_THAT(fault({.grid = 4, .block = 64}, histogram<false>, in, counts, out),
              AllOf(HasSubstr("race: "), HasSubstr("atomically changes")));
  expect_right({.grid = 4, .block = 64}, histogram<true>, in, counts, out);
}

TEST_F(Races, BytesSideBySideAreApart) {
  // One byte a thread: neighbours share words, not bytes.
  auto* bytes = device<uint8_t>(64);
  expect_right({.block = 64}, write_at<uint8_t>, bytes, int64_t{0});
}

TEST_F(Races, LaunchesThatNothingOrders) {
  auto* values = device<float>(128);
  auto* out = device<float>(64);
  const auto launch = [&](int64_t number, auto kernel, auto... args) {
    machine_.run({.name = "k", .grid = 1, .block = 64, .thread = emulator::bind(kernel, args...), .launch = number});
  };
  set_ordered([](int64_t earlier, int64_t later) { return earlier % 2 == later % 2; });  // two streams
  launch(10, write_at<float>, values, int64_t{0});
  launch(12, read_at<float>, values, int64_t{0}, out);
  launch(13, read_at<float>, values, int64_t{64}, device<float>(64));
  EXPECT_THAT(error_of([&] { launch(15, read_at<float>, values, int64_t{32}, device<float>(64)); }),
              AllOf(HasSubstr("race: reads global"), HasSubstr("of launch 10"), HasSubstr(marked("at: write")),
                    HasSubstr("nothing orders the launches")));
  EXPECT_THAT(error_of([&] { launch(17, write_at<float>, values, int64_t{0}); }), HasSubstr("of launch 1"));
  EXPECT_EQ(error_of([&] { launch(18, write_at<float>, values, int64_t{0}); }), "");
}

}  // namespace
}  // namespace ashlar::instrumented
