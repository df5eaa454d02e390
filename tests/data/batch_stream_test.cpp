#include "data/read/batch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "data/read/prefetcher.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

StreamOptions options(int64_t T, int64_t B, int64_t dp_index = 0, int64_t dp_size = 1) {
  return {.sequence_length = T,
          .micro_batch = B,
          .dp_index = dp_index,
          .dp_size = dp_size,
          .documents = {},
          .vocab_size = 257};
}

using Row = std::vector<int32_t>;

Row ids_of(const Batch& batch, int64_t b) {
  return {batch.ids.begin() + b * batch.T, batch.ids.begin() + (b + 1) * batch.T};
}

/// Rows keyed by their global sample index, from `count` batches.
std::map<int64_t, Row> rows_of(BatchSource& stream, int64_t count) {
  std::map<int64_t, Row> rows;
  Batch batch;
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_TRUE(stream.next(batch));
    for (int64_t b = 0; b < batch.B; ++b) EXPECT_TRUE(rows.emplace(batch.first_sample + b, ids_of(batch, b)).second);
  }
  return rows;
}

class Streams : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_.train = random_tokens(400'000, 5000, 1);
    spec_.validation = random_tokens(10'000, 500, 2);
    spec_.shard_tokens = {65536, 131072};
    write_dataset(path(), spec_);
  }
  std::string path() const { return dir_.file("set"); }

  testing::ScratchDir dir_;
  DatasetSpec spec_;
};

TEST_F(Streams, AnEpochHoldsEveryWindowOnceWithItsTargets) {
  for (const int64_t T : {64, 100, 70'000}) {
    TrainStream stream(opened({{path(), 1}}), options(T, 1), 5, 0);
    const int64_t W = (400'000 - 1) / T;
    ASSERT_EQ(stream.windows(0), W);
    std::vector<Row> expected, got;
    for (int64_t w = 0; w < W; ++w)
      expected.emplace_back(spec_.train.begin() + w * T, spec_.train.begin() + w * T + T + 1);
    Batch batch;
    for (int64_t i = 0; i < W; ++i) {
      stream.next(batch);
      ASSERT_EQ(batch.first_sample, i);
      ASSERT_EQ(batch.valid_targets, T);
      Row row = ids_of(batch, 0);
      for (int64_t t = 0; t + 1 < T; ++t) ASSERT_EQ(batch.targets[t], batch.ids[t + 1]);
      row.push_back(batch.targets.back());
      got.push_back(row);
    }
    std::sort(expected.begin(), expected.end());
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, expected) << "T = " << T;
  }
}

TEST_F(Streams, WideTokensReadAlike) {
  DatasetSpec wide = spec_;
  wide.wide = true;
  write_dataset(dir_.file("wide"), wide);
  TrainStream a(opened({{path(), 1}}), options(128, 4), 5, 0),
      b(opened({{dir_.file("wide"), 1}}), options(128, 4), 5, 0);
  EXPECT_EQ(rows_of(a, 50), rows_of(b, 50));
}

TEST_F(Streams, ResumeEqualsUnbroken) {
  TrainStream unbroken(opened({{path(), 1}}), options(100, 3), 5, 0);
  const auto all = rows_of(unbroken, 3000);  // over two epochs
  for (const int64_t stop : {1, 17, 1333, 1334, 2999}) {
    TrainStream before(opened({{path(), 1}}), options(100, 3), 5, 0);
    auto rows = rows_of(before, stop);
    ASSERT_EQ(before.position(), stop * 3);
    TrainStream after(opened({{path(), 1}}), options(100, 3), 5, before.position());
    rows.merge(rows_of(after, 3000 - stop));
    EXPECT_EQ(rows, all) << stop;
  }
}

TEST_F(Streams, DataParallelPartsAreDisjointAndTheirUnionIsTheWhole) {
  TrainStream whole(opened({{path(), 1}}), options(100, 12), 5, 0);
  const auto all = rows_of(whole, 200);
  for (const int64_t dp : {2, 3, 4, 6}) {
    std::map<int64_t, Row> rows;
    for (int64_t d = 0; d < dp; ++d) {
      TrainStream part(opened({{path(), 1}}), options(100, 12 / dp, d, dp), 5, 0);
      for (auto& [sample, row] : rows_of(part, 200)) {
        ASSERT_TRUE(rows.emplace(sample, row).second) << "sample " << sample << " read twice";
      }
      EXPECT_EQ(part.position(), whole.position());
    }
    EXPECT_EQ(rows, all) << dp;
  }
}

TEST_F(Streams, AtMostTwoGroupsStay) {
  DatasetSpec big;
  big.train = random_tokens(65536 * 200, 1000, 3);
  write_dataset(dir_.file("big"), big);
  TrainStream stream(opened({{dir_.file("big"), 1}}), options(1024, 8), 5, 0);
  Batch batch;
  int64_t most = 0;
  for (int64_t i = 0; i < stream.windows(0) / 8 + 10; ++i) {
    stream.next(batch);
    most = std::max(most, stream.resident_bytes());
    ASSERT_LE(stream.resident_bytes(), stream.max_resident_bytes());
  }
  // Two groups of 64 chunks and not much less: the bound is not idle.
  EXPECT_GT(most, int64_t{100} * 65536 * 4);
  EXPECT_LT(most, int64_t{130} * (65536 + 1024) * 4 + 1'000'000);
}

TEST_F(Streams, MixturesDrawByWeight) {
  DatasetSpec other;
  other.train.assign(30'000, 7);  // told apart by its one id
  write_dataset(dir_.file("other"), other);
  TrainStream stream(opened({{path(), 0.75}, {dir_.file("other"), 0.25}}), options(100, 4), 5, 0);
  int64_t from_other = 0;
  for (int64_t i = 0; i < 500; ++i) {
    Batch batch;
    stream.next(batch);
    for (int64_t b = 0; b < 4; ++b) {
      const Row row = ids_of(batch, b);
      from_other += std::all_of(row.begin(), row.end(), [](int32_t id) { return id == 7; }) ? 1 : 0;
    }
    ASSERT_EQ(from_other, i + 1);
  }
}

TEST_F(Streams, TheSeedDecidesTheOrder) {
  TrainStream first(opened({{path(), 1}}), options(100, 1), 5, 0), second(opened({{path(), 1}}), options(100, 1), 6, 0);
  int64_t equal = 0;
  for (const auto rows = rows_of(first, 100), others = rows_of(second, 100); const auto& [sample, row] : rows)
    equal += row == others.at(sample) ? 1 : 0;
  EXPECT_LE(equal, 2);
}

TEST_F(Streams, EntriesOfAMixtureHaveOrdersOfTheirOwn) {
  TrainStream stream(opened({{path(), 1}, {path(), 1}}), options(100, 2), 5, 0);  // in turn
  int64_t equal = 0;
  Batch batch;
  for (int64_t i = 0; i < 100; ++i) {
    stream.next(batch);
    equal += ids_of(batch, 0) == ids_of(batch, 1) ? 1 : 0;
  }
  EXPECT_LE(equal, 2) << "the same dataset twice would give every window twice in a row";
}

TEST_F(Streams, DocumentMaskingByHand) {
  //                 0  1  2    3    4  5    6  7  8
  const Row tokens{10, 11, 256, 256, 12, 256, 13, 14, 15};
  Batch batch;
  const DocumentRule rule{.mask = true, .restart_positions = true};
  resize_batch(batch, 1, 8, rule);
  fill_row(batch, 0, tokens, 256, rule);
  EXPECT_EQ(batch.ids, Row({10, 11, 256, 256, 12, 256, 13, 14}));
  EXPECT_EQ(batch.targets, Row({11, 256, -1, -1, 256, -1, 14, 15}));
  EXPECT_EQ(batch.doc_start, Row({0, 0, 0, 3, 4, 4, 6, 6}));
  EXPECT_EQ(batch.positions, Row({0, 1, 2, 0, 0, 1, 0, 1}));
  EXPECT_EQ(batch.valid_targets, 5);

  const DocumentRule none{};
  resize_batch(batch, 1, 8, none);
  fill_row(batch, 0, tokens, 256, none);
  EXPECT_EQ(batch.targets, Row({11, 256, 256, 12, 256, 13, 14, 15}));
  EXPECT_EQ(batch.positions, Row({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(batch.doc_start.empty());
  EXPECT_EQ(batch.valid_targets, 8);
}

TEST_F(Streams, OrderIsAStableSortOfIds) {
  TrainStream stream(opened({{path(), 1}}), options(100, 5), 5, 0);
  Batch batch;
  stream.next(batch);
  Row expected(500);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) { return batch.ids[a] < batch.ids[b]; });
  EXPECT_EQ(batch.order, expected);
}

TEST_F(Streams, ValidationCoversEveryTargetOnceOnAnyMesh) {
  for (const int64_t T : {64, 99, 20'000}) {
    for (const int64_t dp : {1, 3}) {
      std::map<int64_t, Row> rows;  // counted targets by window
      int64_t valid = 0;
      for (int64_t d = 0; d < dp; ++d) {
        ValidationStream stream(path(), options(T, 2, d, dp));
        Batch batch;
        int64_t batches = 0;
        for (; stream.next(batch); ++batches) {
          valid += batch.valid_targets;
          for (int64_t b = 0; b < batch.B; ++b) {
            Row& row = rows[batch.first_sample + b];
            for (int64_t t = 0; t < batch.T; ++t) {
              if (batch.targets[b * batch.T + t] != kIgnoreIndex) row.push_back(batch.targets[b * batch.T + t]);
            }
          }
        }
        EXPECT_EQ(batches, stream.num_batches());
        stream.rewind();
        EXPECT_EQ(stream.next(batch), batches > 0);
      }
      Row joined;
      for (const auto& [window, row] : rows) joined.insert(joined.end(), row.begin(), row.end());
      EXPECT_EQ(joined, Row(spec_.validation.begin() + 1, spec_.validation.end()));
      EXPECT_EQ(valid, 9999);
    }
  }
}

/// The counted targets of all dp indices by sequence.
std::map<int64_t, Row> targets_of(const std::string& path, const StreamOptions& options, int64_t sequences) {
  std::map<int64_t, Row> rows;
  for (int64_t d = 0; d < options.dp_size; ++d) {
    StreamOptions own = options;
    own.dp_index = d;
    ValidationStream stream(path, own, sequences);
    for (Batch batch; stream.next(batch);) {
      for (size_t n = 0; n < batch.targets.size(); ++n)
        if (batch.targets[n] != kIgnoreIndex)
          rows[batch.first_sample + static_cast<int64_t>(n) / batch.T].push_back(batch.targets[n]);
    }
  }
  return rows;
}

// So many and no more, the same ones, on any number of replicas and in any micro-batch; the last of them may be short.
TEST_F(Streams, ValidationSequencesAreSpreadEvenlyOverThePart) {
  constexpr int64_t T = 10, kWindows = 1000;  // of 10,000 tokens; the last has 9 targets
  for (const int64_t n : {1, 7, 300, 999, 1000}) {
    std::map<int64_t, Row> expected;
    for (int64_t i = 0; i < n; ++i) {
      const auto first = spec_.validation.begin() + i * kWindows / n * T + 1;
      expected[i] = Row(first, std::min(first + T, spec_.validation.end()));
    }
    for (const int64_t dp : {1, 2, 3, 4})
      for (const int64_t B : {1, 2, 5}) EXPECT_EQ(targets_of(path(), options(T, B, 0, dp), n), expected) << n;
  }
  // As many as anybody may ask for are the whole part.
  const auto whole = targets_of(path(), options(T, 4), 0);
  EXPECT_EQ(whole.size(), 1000U);
  for (const int64_t many : {int64_t{1001}, int64_t{1} << 62, INT64_MAX})
    EXPECT_EQ(targets_of(path(), options(T, 4), many), whole) << many;
}

// A row or a column that holds nothing would be computed all the same.
TEST_F(Streams, AValidationBatchIsAsLargeAsWhatItHolds) {
  const auto sizes = [&](const StreamOptions& o, int64_t sequences) {
    std::vector<std::pair<int64_t, int64_t>> found;
    ValidationStream stream(path(), o, sequences);
    for (Batch batch; stream.next(batch);) {
      found.emplace_back(batch.B, batch.T);
      EXPECT_EQ(batch.ids.size(), static_cast<size_t>(batch.B * batch.T));
      EXPECT_EQ(batch.order.size(), batch.ids.size());
    }
    return found;
  };
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(sizes(options(1 << 24, 8), 0), (Sizes{{1, 9999}}));
  EXPECT_EQ(sizes(options(4000, 8), 0), (Sizes{{3, 4000}}));
  EXPECT_EQ(sizes(options(4000, 2), 0), (Sizes{{2, 4000}, {1, 1999}}));
  EXPECT_EQ(sizes(options(4000, 2, 1, 2), 0), (Sizes{{1, 1999}}));
  EXPECT_EQ(sizes(options(4000, 2, 2, 3), 0), Sizes{});
  EXPECT_EQ(sizes(options(10, 4), 6), (Sizes{{4, 10}, {2, 10}}));
  // What tensor ranks divide is padded as far as they need, and no further than the batch was to be.
  StreamOptions shared = options(4000, 2);
  shared.rows_multiple = 4;
  EXPECT_EQ(sizes(shared, 0), (Sizes{{2, 4000}, {1, 2000}}));
  shared = options(4001, 8);
  shared.rows_multiple = 8;
  EXPECT_EQ(sizes(shared, 0), (Sizes{{8, 4001}}));
  shared = options(9999, 8);
  shared.rows_multiple = 8;
  EXPECT_EQ(sizes(shared, 0), (Sizes{{8, 9999}}));
}

TEST_F(Streams, ErrorsAreNamed) {
  const auto text = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
      return e.what();
    }
    return "nothing was thrown";
  };
  StreamOptions small = options(100, 1);
  small.vocab_size = 200;
  EXPECT_THAT(text([&] {
                TrainStream(opened({{path(), 1}}), small, 1, 0);
              }),
              AllOf(HasSubstr(path()), HasSubstr("256"), HasSubstr("200")));
  EXPECT_THAT(text([&] {
                TrainStream(opened({{path(), 1}}), options(400'000, 1), 1, 0);
              }),
              AllOf(HasSubstr(path()), HasSubstr("400001")));
  EXPECT_THAT(text([&] { TrainStream(opened({{dir_.file("absent"), 1}}), options(8, 1), 1, 0); }), HasSubstr("absent"));
  DatasetSpec bare;
  bare.train = spec_.train;
  write_dataset(dir_.file("bare"), bare);
  EXPECT_THAT(text([&] { ValidationStream(dir_.file("bare"), options(8, 1)); }),
              AllOf(HasSubstr("bare"), HasSubstr("0 tokens")));
}

TEST_F(Streams, PrefetchGivesWhatDirectReadingGives) {
  TrainStream direct(opened({{path(), 1}}), options(100, 3), 5, 0);
  Prefetcher prefetcher(std::make_unique<TrainStream>(opened({{path(), 1}}), options(100, 3), 5, 0), 3);
  for (int i = 0; i < 1000; ++i) {
    Batch expected;
    direct.next(expected);
    const Batch* got = prefetcher.next();
    ASSERT_NE(got, nullptr);
    ASSERT_EQ(got->ids, expected.ids);
    ASSERT_EQ(got->targets, expected.targets);
    ASSERT_EQ(got->order, expected.order);
    ASSERT_EQ(got->first_sample, expected.first_sample);
  }
  EXPECT_GE(prefetcher.take_data_wait_ms(), 0);
  EXPECT_EQ(prefetcher.take_data_wait_ms(), 0);
}

TEST_F(Streams, PrefetchEndsWithItsSource) {
  auto stream = std::make_unique<ValidationStream>(path(), options(100, 3));
  const int64_t batches = stream->num_batches();
  Prefetcher prefetcher(std::move(stream), 2);
  for (int64_t i = 0; i < batches; ++i) ASSERT_NE(prefetcher.next(), nullptr);
  EXPECT_EQ(prefetcher.next(), nullptr);
  EXPECT_EQ(prefetcher.next(), nullptr);
}

/// Gives `good` batches, slowly, then fails.
class Failing final : public BatchSource {
 public:
  explicit Failing(int64_t good) : good_(good) {}
  bool next(Batch& batch) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (good_-- == 0) throw damaged_error("data", "chunk 7");
    resize_batch(batch, 1, 1, {});
    return true;
  }

 private:
  int64_t good_;
};

TEST(Prefetcher, ForwardsTheExceptionInItsPlaceAndCountsTheWait) {
  Prefetcher prefetcher(std::make_unique<Failing>(5), 4);
  for (int i = 0; i < 5; ++i) ASSERT_NE(prefetcher.next(), nullptr);
  for (int i = 0; i < 2; ++i) {
    try {
      prefetcher.next();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kDamagedData);
      EXPECT_THAT(e.what(), HasSubstr("chunk 7"));
    }
  }
  EXPECT_GT(prefetcher.take_data_wait_ms(), 50);
}

TEST(Prefetcher, StopsWhileFullOrWorking) {
  for (int i = 0; i < 20; ++i) Prefetcher(std::make_unique<Failing>(1000), 2 + i % 3);
}

TEST_F(Streams, OpensAndGivesTheFirstBatchQuickly) {
  const auto start = std::chrono::steady_clock::now();
  Prefetcher prefetcher(std::make_unique<TrainStream>(opened({{path(), 1}}), options(1024, 8), 5, 0));
  ASSERT_NE(prefetcher.next(), nullptr);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("first_batch_ms", std::to_string(ms));
  EXPECT_LT(ms, 500) << "the goal is 50 ms; ten times that allows for a busy machine";
}

}  // namespace
}  // namespace ashlar::data
