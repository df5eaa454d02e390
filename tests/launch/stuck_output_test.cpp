// Standard output that nobody reads: a training goes on without it, everything else waits.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/strings.h"
#include "core/io/line_writer.h"
#include "launch/commands/output_queue.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using io::LineWriter;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// The thread of a writer may outlive its test, so the end that it writes to stays open: otherwise its last lines would
/// go to the next test's pipe, which gets the same number.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    EXPECT_GE(fcntl(ends_[1], F_SETPIPE_SZ, 4096), 4096);
  }
  ~Pipe() { close_reader(); }
  int writer() const { return ends_[1]; }
  void close_reader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  /// Until nothing has come for a while.
  std::string read_all() const {
    std::string text;
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    for (auto last = Clock::now(); Clock::now() - last < 500ms;) {
      char buffer[4096];
      const ssize_t n = read(ends_[0], buffer, sizeof(buffer));
      if (n > 0) {
        text.append(buffer, static_cast<size_t>(n));
        last = Clock::now();
      } else {
        std::this_thread::sleep_for(5ms);
      }
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

constexpr LineWriter::Options kSmall{.most_bytes = 2000, .patience = 200ms, .longest = 1000ms};

TEST(LineWriterTest, WhatIsReadComesInOrderAndWhole) {
  const Pipe pipe;
  LineWriter writer(pipe.writer(), kSmall);
  std::string read;
  std::thread reader([&] { read = pipe.read_all(); });
  std::string said;
  for (int i = 0; i < 300; ++i) {
    const std::string line = str_cat("line ", i, std::string(static_cast<size_t>(i % 70), '.'), "\n");
    said += line;
    writer.add(line, static_cast<LineKind>(i % 3));
    EXPECT_TRUE(writer.finish());
  }
  reader.join();
  EXPECT_EQ(read, said);
}

TEST(LineWriterTest, NobodyIsWaitedForStepsGoFirstAndAreCounted) {
  const Pipe pipe;
  const std::string full = std::string(4095, 'x') + "\n";
  ASSERT_EQ(write(pipe.writer(), full.data(), full.size()), 4096);
  LineWriter writer(pipe.writer(), kSmall);
  std::vector<std::string> warnings;
  const auto begin = Clock::now();
  for (int i = 0; i < 2000; ++i) {
    writer.add(str_cat("step ", i, "\n"), LineKind::kStep);
    if (i % 100 != 50) continue;
    warnings.push_back(str_cat("warning: ", i));
    writer.add(warnings.back() + "\n", LineKind::kWarning);
  }
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_FALSE(writer.finish()) << "a bounded wait";
  const auto waited = Clock::now();
  EXPECT_FALSE(writer.finish());
  EXPECT_LT(Clock::now() - waited, 150ms) << "not twice";
  const std::vector<std::string> lines = lines_of(pipe.read_all());
  int64_t last = -1, shown = 0, left_out = 0;
  std::vector<std::string> seen;
  const std::regex number("[0-9]+");
  for (const std::string& line : lines) {
    if (line.starts_with("xxx")) continue;
    std::smatch at;
    ASSERT_TRUE(std::regex_search(line, at, number)) << line;
    const int64_t n = std::stoll(at.str());
    if (line.starts_with("(")) {
      left_out += n;
    } else if (line.starts_with("warning")) {
      seen.push_back(line);
    } else {
      EXPECT_GT(n, last) << "in order";
      last = n;
      ++shown;
    }
  }
  EXPECT_EQ(seen, warnings) << "none of them is lost";
  EXPECT_EQ(shown + left_out, 2000);
  EXPECT_GT(left_out, 500);
  EXPECT_EQ(last, 1999) << "the newest are shown";
}

TEST(LineWriterTest, AStoppedTerminalIsNotWaitedFor) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const int user = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(user, 0);
  const int flags = fcntl(user, F_GETFL);
  ASSERT_EQ(tcflow(user, TCOOFF), 0);  // as Ctrl-S does
  LineWriter writer(user, kSmall);
  for (int i = 0; i < 1000; ++i) writer.add(str_cat("step ", i, "\n"), LineKind::kStep);
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(fcntl(user, F_GETFL), flags) << "the user's terminal is left as it is";
  ASSERT_EQ(tcflow(user, TCOON), 0);
  std::string text;
  for (const auto until = Clock::now() + 60s; Clock::now() < until && text.find("step 999") == std::string::npos;) {
    char buffer[4096];
    const ssize_t n = read(terminal, buffer, sizeof(buffer));
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_THAT(text, HasSubstr("left out here"));
  EXPECT_THAT(text, HasSubstr("step 999"));
  close(terminal);
}

TEST(LineWriterTest, AReaderThatGoesIsAFailureOnce) {
  const auto before = signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.close_reader();
  LineWriter writer(pipe.writer(), kSmall);
  EXPECT_EQ(writer.new_failure(), 0);
  writer.add("one\n", LineKind::kInfo);
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(writer.new_failure(), EPIPE);
  EXPECT_EQ(writer.new_failure(), 0);
  signal(SIGPIPE, before);
}

// What `launch` passes on: bytes as they come, dropped in whole lines, told where they stood.
TEST(OutputQueue, DropsWholeLinesAndCountsThem) {
  const Pipe pipe;
  const std::string full = std::string(4095, 'x') + "\n";
  ASSERT_EQ(write(pipe.writer(), full.data(), full.size()), 4096);
  launch::OutputQueue queue(pipe.writer());
  const std::string tail(90, '.');
  std::string said, bytes;
  constexpr int kLines = 30'000;
  for (int i = 0; i < kLines; ++i) said += str_cat("line ", i, tail, "\n");
  for (size_t at = 0, size = 1; at < said.size(); at += size, size = size % 4093 + 7)
    queue.add(std::string_view(said).substr(at, size));
  EXPECT_FALSE(queue.drain(50ms));
  queue.add("begun while it is full ");
  std::string read;
  std::thread reader([&] { read = pipe.read_all(); });
  EXPECT_TRUE(queue.drain(10s));
  queue.add("and ended later\nlast\n");
  reader.join();
  std::vector<std::string> lines = lines_of(read);
  ASSERT_EQ(lines.back(), "last");
  lines.pop_back();
  int64_t told = 0, whole = 0, cut = 0;
  for (const std::string& line : lines) {
    if (line.starts_with("xxx")) continue;
    if (line.starts_with("(")) {
      ASSERT_EQ(std::sscanf(line.c_str(), "(%ld lines were left out here", &told), 1) << line;
      continue;
    }
    const bool good = line == str_cat("line ", whole, tail);
    whole += good ? 1 : 0;
    cut += good ? 0 : 1;
  }
  EXPECT_GT(told, 10'000);
  EXPECT_EQ(told, queue.dropped());
  EXPECT_EQ(whole + told, kLines + 1);
  EXPECT_LE(cut, 1) << "the one that was begun when it was full";
}

// Before: the run stood still for ever once the pipe was full, and hang_after called that a hang.
TEST(StuckOutput, ATrainingEndsAsIfItWereRead) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=60 run.dir=read").code, 0);
  const std::string p = (run.dir() / "p").string();
  ASSERT_EQ(mkfifo(p.c_str(), 0600), 0);
  const int reader = open(p.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int size = open(p.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fcntl(size, F_SETPIPE_SZ, 4096), 4096);
  for (const char* launch : {"", "launch -np 2 "}) {
    const ShellResult r =
        run.ashlar(str_cat(launch, "train tiny.toml train.steps=60 log.every=1 run.hang_after=20 run.dir=r",
                           *launch != 0, " >p", *launch != 0 ? " 2>p" : ""));
    EXPECT_EQ(r.code, 0) << launch << r.err;
  }
  EXPECT_EQ(run.exact_metrics("r0"), run.exact_metrics("read"));
  // Errors as well as lines, and the exit code stands.
  const ShellResult wrong = run.ashlar("train tiny.toml model.n_heads=5 run.dir=wrong >p 2>p");
  EXPECT_EQ(wrong.code, 2);
  close(size);
  close(reader);
}

// Before: a descriptor that was free became that of the run's lock file, into which the first line was then written.
TEST(ClosedStreams, NoFileTakesTheirPlace) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=read").code, 0);
  int runs = 0;
  for (const char* closed : {"<&- >&- 2>&-", "<&- >&-", ">&- 2>&-", "2>&-"}) {
    const std::string dir = str_cat("r", ++runs);
    EXPECT_EQ(run.ashlar(str_cat("train tiny.toml train.steps=6 run.dir=", dir, " ", closed)).code, 0) << closed;
    EXPECT_EQ(run.exact_metrics(dir), run.exact_metrics("read")) << closed;
  }
  EXPECT_EQ(run.ashlar("explain --markdown >&-").code, 6) << "a result that nobody can get";
}

// A result is worth waiting for.
TEST(StuckOutput, OtherCommandsLoseNothing) {
  const RunFixture run;
  const std::string script =
      "cd " + shell_quote(run.dir().string()) + "; " + shell_quote(ASHLAR_BINARY) + " explain --markdown ";
  const ShellResult slow = run_shell(script + " | (sleep 1; cat)");
  EXPECT_EQ(slow.code, 0);
  EXPECT_EQ(slow.out, run_shell(script).out);
  EXPECT_GT(slow.out.size(), 10000U);
}

}  // namespace
}  // namespace ashlar::testing
