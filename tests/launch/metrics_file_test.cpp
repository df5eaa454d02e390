// metrics.jsonl across a resume: what was written is kept, what is made again is set aside, what cannot be read is
// named.
#include "launch/training/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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
  EXPECT_NE(log_.warnings()[0].find("10 lines are no row with a step, kept as found: line 2, 6, 10,"),
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

TEST_F(MetricsRows, NothingToCutWritesNothing) {
  write(row(1) + row(2));
  const auto before = std::filesystem::last_write_time(dir_.file("metrics.jsonl"));
  open_at(2);
  EXPECT_EQ(std::filesystem::last_write_time(dir_.file("metrics.jsonl")), before);
  EXPECT_FALSE(std::filesystem::exists(dir_.file("metrics.cut.jsonl")));
}

}  // namespace
}  // namespace ashlar::testing
