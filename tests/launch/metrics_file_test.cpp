// metrics.jsonl across a resume: what was written is kept, what is made again is set aside, what cannot be read is
// named.
#include "launch/training/metrics_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/mutate.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {
namespace {

class MetricsRows : public ::testing::Test {
 protected:
  std::string text_of(const char* name) const {
    std::ifstream in(dir_.file(name));
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(dir_.file("metrics.jsonl")) << text; }
  int64_t open_at(int64_t step) {
    return training::MetricsFile(dir_.file("metrics.jsonl"), step, log_).last_validation_step();
  }

  ScratchDir dir_;
  std::vector<std::string> lines_;
  Log log_{[this](std::string_view line) { lines_.emplace_back(line); }};
};

std::string row(int64_t step) { return "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n"; }

TEST_F(MetricsRows, RowsOfLaterStepsAreSetAside) {
  const std::string validation = "{\"step\":2,\"val_loss\":2.5}\n";
  write(row(1) + row(2) + validation + row(3) + row(4));
  EXPECT_EQ(open_at(3), 2);
  EXPECT_EQ(text_of("metrics.jsonl"), row(1) + row(2) + validation + row(3));
  EXPECT_EQ(text_of("metrics.cut.jsonl"), row(4));
  EXPECT_EQ(open_at(1), -1);
  EXPECT_EQ(text_of("metrics.jsonl"), row(1));
  EXPECT_EQ(text_of("metrics.cut.jsonl"), row(4) + row(2) + validation + row(3)) << "cut twice: one file, added to";
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(MetricsRows, OddLinesAreKeptAndNamedOnce) {
  const std::string odd[] = {"not JSON\n",
                             "\n",
                             "[1, 2]\n",
                             "{\"loss\": 3}\n",
                             "{\"step\":\"x\"}\n",
                             "{\"step\":2.5}\n",
                             "{\"step\":null}\n",
                             "{\"step\":1e999}\n",
                             "{\"step\":18446744073709551615}\n",
                             "\xff\xfe\n"};
  std::string all, kept;
  for (const std::string& line : odd) all += row(1) + line + row(2) + row(9);
  for (const std::string& line : odd) kept += row(1) + line + row(2);
  write(all);
  open_at(5);
  EXPECT_EQ(text_of("metrics.jsonl"), kept);
  ASSERT_EQ(log_.warnings().size(), 1U);
  EXPECT_NE(log_.warnings()[0].find(
                "10 lines are not JSON with an integer \"step\"; such lines are kept unchanged: line 2, 6, 10,"),
            std::string::npos)
      << log_.warnings()[0];
}

TEST_F(MetricsRows, ATornLastLineIsSetAside) {
  write(row(1) + "{\"step\":2,\"lo");
  open_at(5);
  EXPECT_EQ(text_of("metrics.jsonl"), row(1));
  EXPECT_EQ(text_of("metrics.cut.jsonl"), "{\"step\":2,\"lo\n");
}

// Nor would a pipe keep what is put into it: with a reader it would be gone, without one the open would wait.
TEST_F(MetricsRows, WhatIsNoFileIsRefused) {
  const std::string cut = dir_.file("metrics.cut.jsonl");
  ASSERT_EQ(mkfifo(cut.c_str(), 0600), 0);
  const int reader = open(cut.c_str(), O_RDONLY | O_NONBLOCK);
  write(row(1) + row(2));
  EXPECT_THROW(open_at(1), Error);
  EXPECT_EQ(text_of("metrics.jsonl"), row(1) + row(2));
  close(reader);
  std::filesystem::remove(dir_.file("metrics.jsonl"));
  std::filesystem::create_directory(dir_.file("metrics.jsonl"));
  try {
    open_at(1);
    ADD_FAILURE() << "a directory was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("expected a regular file, got a directory"), std::string::npos)
        << error.what();
  }
}

// What a full disk does to an append, by a limit on the size of files; a row is torn where it was reached.
TEST_F(MetricsRows, RowsThatFindNoSpaceWaitInMemory) {
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit whole{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &whole), 0);
  const auto limit = [&](size_t bytes) {
    const rlimit small{.rlim_cur = bytes, .rlim_max = whole.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  };
  const auto append = [](training::MetricsFile& file, int64_t step) {
    const std::string line = row(step);
    file.append(line.substr(0, line.size() - 1));
  };
  std::string all;
  for (int64_t step = 1; step <= 6; ++step) all += row(step);
  {
    training::MetricsFile file(dir_.file("metrics.jsonl"), 0, log_);
    append(file, 1);
    limit(row(1).size() * 3 / 2);
    for (int64_t step = 2; step <= 5; ++step) append(file, step);
    EXPECT_EQ(text_of("metrics.jsonl"), all.substr(0, row(1).size() * 3 / 2));
    ASSERT_EQ(log_.warnings().size(), 1U) << "said once";
    EXPECT_NE(log_.warnings()[0].find("cannot be written: File too large; its rows are held"), std::string::npos);
    setrlimit(RLIMIT_FSIZE, &whole);
    append(file, 6);
    EXPECT_EQ(text_of("metrics.jsonl"), all);
    EXPECT_NE(lines_.back().find("is written again: 5 rows"), std::string::npos) << lines_.back();
    limit(all.size());
    append(file, 7);
    append(file, 8);
  }
  setrlimit(RLIMIT_FSIZE, &whole);
  signal(SIGXFSZ, before);
  EXPECT_EQ(text_of("metrics.jsonl"), all);
  EXPECT_NE(lines_.back().find("has lost 2 rows, which could not be written: File too large"), std::string::npos)
      << lines_.back();
}

TEST_F(MetricsRows, WhatMemoryDoesNotKeepIsCounted) {
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit whole{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = whole.rlim_max};
  const std::string large(training::HeldFile::kMostHeldBytes / 4, 'x');
  {
    training::MetricsFile file(dir_.file("metrics.jsonl"), 0, log_);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int i = 0; i < 10; ++i) file.append(large);
    setrlimit(RLIMIT_FSIZE, &whole);
  }
  signal(SIGXFSZ, before);
  EXPECT_EQ(std::filesystem::file_size(dir_.file("metrics.jsonl")), 3 * (large.size() + 1));
  EXPECT_NE(lines_.back().find("has lost 7 rows"), std::string::npos) << lines_.back();
}

TEST_F(MetricsRows, WhatIsWrittenTakesNoMemory) {
  const std::string large(training::HeldFile::kMostHeldBytes / 4, 'x');
  {
    training::MetricsFile file(dir_.file("metrics.jsonl"), 0, log_);
    for (int i = 0; i < 6; ++i) file.append(large);
  }
  EXPECT_EQ(std::filesystem::file_size(dir_.file("metrics.jsonl")), 6 * (large.size() + 1));
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(MetricsRows, RowsOfAnyContentAreBounded) {
  expect_bounded({.inputs = {row(1) + row(2) + "{\"step\":2,\"val_loss\":2.5}\n" + row(3)}, .codes = {}},
                 [&](const std::string& text) {
                   write(text);
                   open_at(2);
                 });
}

TEST_F(MetricsRows, NothingToCutWritesNothing) {
  write(row(1) + row(2));
  const auto before = std::filesystem::last_write_time(dir_.file("metrics.jsonl"));
  open_at(2);
  EXPECT_EQ(std::filesystem::last_write_time(dir_.file("metrics.jsonl")), before);
  EXPECT_FALSE(std::filesystem::exists(dir_.file("metrics.cut.jsonl")));
}

}  // namespace
}  // namespace ashlar::testing
