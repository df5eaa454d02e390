// The status line: what a terminal shows while a command runs.
#include "launch/terminal/status_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "launch/terminal/terminal.h"
#include "launch/training/run_status.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::terminal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusLine, IsNeverAsWideAsTheTerminal) {
  const Status status{.what = "step 12/100", .share = 0.125, .text = "loss 2.5000  eta 9s"};
  EXPECT_EQ(layout(status, 80), "[###.....................]  12%  step 12/100  loss 2.5000  eta 9s");
  EXPECT_EQ(layout(status, 60), "[##................]  12%  step 12/100  loss 2.5000  eta 9s");
  EXPECT_EQ(layout(status, 45), " 12%  step 12/100  loss 2.5000  eta 9s") << "no room for a bar";
  EXPECT_EQ(layout(status, 20), " 12%  step 12/100  ");
  EXPECT_EQ(layout({.what = "caf\u00e9\tx", .share = -1, .text = ""}, 80), "caf??x") << "one column a character";
  EXPECT_EQ(layout({.what = "", .share = 7, .text = ""}, 31).substr(0, 27), "[" + std::string(21, '#') + "] 100");
  for (int width = 0; width < 90; ++width)
    EXPECT_LE(layout(status, width).size(), static_cast<size_t>(std::max(0, width - 1))) << width;
}

TEST(StatusLine, IsDrawnFiveTimesASecondAndErasedOnce) {
  std::vector<std::string> written;
  double now = 100;
  int made = 0;
  StatusLine line({.width = [] { return 40; },
                   .write = [&](std::string text) { written.push_back(std::move(text)); },
                   .clock = [&] { return now; }});
  const auto show = [&] {
    line.show([&] {
      ++made;
      return Status{.what = "x", .share = -1, .text = ""};
    });
  };
  EXPECT_EQ(line.take_erase(), "") << "nothing is drawn yet";
  for (int i = 0; i < 100; ++i, now += 0.01) show();
  EXPECT_EQ(made, 5);
  EXPECT_EQ(written.size(), 5U);
  EXPECT_EQ(written[0], "\r\x1b[Kx");
  EXPECT_EQ(line.take_erase(), kErase);
  EXPECT_EQ(line.take_erase(), "");
  line.clear();
  EXPECT_EQ(written.size(), 5U) << "is erased already";
  line.show_now({.what = "y", .share = -1, .text = ""});
  line.clear();
  EXPECT_EQ(written.back(), kErase);
  StatusLine none(
      {.width = [] { return 0; }, .write = [](const std::string&) { FAIL(); }, .clock = [] { return 0.0; }});
  none.show_now({.what = "y", .share = -1, .text = ""});
  none.show([]() -> Status { throw 1; });
  EXPECT_FALSE(none.on());
}

/// By hand: 100 steps of 2 s, a validation of 10 s every 30 steps and after the last, a save of 1 s every 50 steps.
TEST(RemainingTime, CountsValidationsAndSaves) {
  training::RemainingTime left({.steps = 100, .eval_every = 30, .save_every = 50});
  left.add_step(2000);
  EXPECT_DOUBLE_EQ(left.seconds(10), 180) << "none was measured yet";
  left.add_validation(10);
  left.add_save(1000);
  EXPECT_DOUBLE_EQ(left.seconds(10), 180 + 4 * 10 + 2);
  EXPECT_DOUBLE_EQ(left.seconds(30), 140 + 4 * 10 + 2) << "the validation after step 30 is still due";
  EXPECT_DOUBLE_EQ(left.seconds(31), 138 + 3 * 10 + 2);
  EXPECT_DOUBLE_EQ(left.seconds(100), 10 + 1) << "the last step is validated and saved";
  training::RemainingTime at_end({.steps = 100, .eval_every = 0, .save_every = 0});
  at_end.add_step(1000);
  at_end.add_validation(5);
  EXPECT_DOUBLE_EQ(at_end.seconds(40), 60 + 5);
}

/// What a terminal shows: carriage return, erase to the end of the line, line break.
class Screen {
 public:
  explicit Screen(size_t width) : width_(width) {}

  void print(const std::string& bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (c == '\r') {
        column_ = 0;
      } else if (c == '\n') {
        lines.push_back(current);
        current.clear();
        column_ = 0;
      } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
        ++erased;
        current.resize(std::min(current.size(), column_));
        i += 2;
      } else {
        if (column_ >= current.size()) current.resize(column_ + 1, ' ');
        current[column_++] = c;
        if (current.front() == '[') widest_bar = std::max(widest_bar, column_);
        if (column_ > width_) ++wrapped;
      }
      if (current.starts_with("[") && current.find("] ") != std::string::npos) saw_bar = true;
      if (current.find("validating after step ") != std::string::npos) saw_validation = true;
    }
  }

  std::vector<std::string> lines;  ///< without the current one
  std::string current;
  int erased = 0, wrapped = 0;
  bool saw_bar = false, saw_validation = false;
  size_t widest_bar = 0;

 private:
  size_t width_, column_ = 0;
};

/// Runs `ashlar WORDS` on a terminal of `columns`. `signal`: sent after the first bar.
struct OnTerminal {
  OnTerminal(const testing::RunFixture& run, const std::string& words, const char* term, int columns, int signal = 0)
      : screen(static_cast<size_t>(columns)) {
    winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
    int terminal = -1;
    const std::string line = "cd '" + run.dir().string() + "' && exec " + ASHLAR_BINARY + " " + words;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      setenv("TERM", term, 1);
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(terminal, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)) {
      if (n <= 0) continue;
      all.append(buffer, static_cast<size_t>(n));
      screen.print(std::string(buffer, static_cast<size_t>(n)));
      if (signal != 0 && screen.saw_bar) kill(child, std::exchange(signal, 0));
    }
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  Screen screen;
  std::string all;
  int code = -1;
};

/// The lines of the log on the screen are those of train.log, whole and without a rest of the bar.
void expect_whole_lines(const testing::RunFixture& run, const OnTerminal& shown, const std::string& dir) {
  const std::string log = run.read(dir + "/train.log");
  EXPECT_THAT(log, Not(HasSubstr("\x1b")));
  EXPECT_THAT(log, Not(HasSubstr("\r")));
  int steps = 0;
  for (const std::string& line : shown.screen.lines) {
    if (!line.starts_with("step ") && !line.starts_with("saved ")) continue;
    ++steps;
    EXPECT_THAT(log, HasSubstr("Z " + line + "\n"));
  }
  EXPECT_GE(steps, 2);
  EXPECT_EQ(shown.screen.current, "") << "is erased at the end";
  for (const std::string& line : shown.screen.lines) {
    EXPECT_FALSE(line.starts_with("[#") || line.starts_with("[.")) << "left over: " << line;
    EXPECT_EQ(line.find("] "), std::string::npos) << line;
  }
}

const std::string kLong =
    testing::under_address_sanitizer()
        ? "train tiny.toml train.steps=600 train.eval_every=150 log.every=30 checkpoint.every=300 "
        : "train tiny.toml train.steps=2000 train.eval_every=500 log.every=100 checkpoint.every=1000 ";

TEST(Terminal, ShowsTheLineOfARunAndErasesIt) {
  const testing::RunFixture run;
  const OnTerminal shown(run, kLong + "train.eval_sequences=0 run.dir=r", "xterm", 70);
  EXPECT_EQ(shown.code, 0) << shown.all;
  EXPECT_TRUE(shown.screen.saw_bar) << shown.all;
  EXPECT_THAT(shown.all, HasSubstr("tok/s  eta "));
  EXPECT_GT(shown.screen.widest_bar, 20U);
  EXPECT_LT(shown.screen.widest_bar, 70U);
  expect_whole_lines(run, shown, "r");
}

TEST(Terminal, HasNoLineWithoutATerminalThatCanRedraw) {
  const testing::RunFixture run;
  const OnTerminal dumb(run, kLong + "run.dir=a", "dumb", 70);
  EXPECT_EQ(dumb.code, 0);
  EXPECT_EQ(dumb.screen.erased, 0) << dumb.all;
  const testing::ShellResult piped = run.ashlar(kLong + "run.dir=b", "TERM=xterm");
  EXPECT_EQ(piped.code, 0);
  EXPECT_THAT(piped.out + piped.err, Not(HasSubstr("\x1b")));
  const testing::ShellResult ranks =
      run.ashlar("launch -np 2 " + kLong + "mesh.data=2 train.steps=50 run.dir=c", "TERM=xterm");
  EXPECT_EQ(ranks.code, 0);
  EXPECT_THAT(ranks.out + ranks.err, Not(HasSubstr("\x1b"))) << "mpirun gives its ranks pseudo terminals";
}

TEST(Terminal, ASignalLeavesWholeLines) {
  const testing::RunFixture run;
  const OnTerminal shown(run, kLong + "train.steps=1000000 run.dir=r", "xterm", 80, SIGINT);
  EXPECT_EQ(shown.code, 77) << shown.all;
  expect_whole_lines(run, shown, "r");
  bool said = false;
  for (const std::string& line : shown.screen.lines) said = said || line.starts_with("ashlar: SIGINT: stopping after");
  EXPECT_TRUE(said) << shown.all;
}

TEST(Terminal, ShowsTheLineOfTheRanksOfLaunch) {
  const testing::RunFixture run;
  const OnTerminal shown(run, "launch -np 2 " + kLong + "mesh.data=2 train.steps=600 log.every=50 run.dir=r", "xterm",
                         100);
  EXPECT_EQ(shown.code, 0) << shown.all;
  EXPECT_TRUE(shown.screen.saw_bar) << shown.all;
  EXPECT_LT(shown.screen.widest_bar, 100U);
  expect_whole_lines(run, shown, "r");
}

TEST(Terminal, OtherCommandsShowTheirProgressBesideTheirResult) {
  const testing::RunFixture run;
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "courses of stone " + std::to_string(i) + "\n";
  run.write("large.txt", text);
  const OnTerminal built(run, "data build large.txt --out large --tokenizer bytes > out.txt", "xterm", 90);
  EXPECT_EQ(built.code, 0) << built.all;
  EXPECT_TRUE(built.screen.saw_bar) << built.all;
  EXPECT_THAT(run.read("out.txt"), HasSubstr("large: 1 files"));
  EXPECT_EQ(built.screen.current, "");
  EXPECT_THAT(built.screen.lines, ElementsAre());
}

}  // namespace
}  // namespace ashlar::terminal
