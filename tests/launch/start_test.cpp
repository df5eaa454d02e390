// What a user notices first: the time to the first line, the memory, and that a steady step asks the system for none.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

// Seconds from exec to the first byte on standard output; the process then ends.
double seconds_to_first_line(const RunFixture& run, const std::string& run_dir) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const std::string override_dir = "run.dir=" + run_dir;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid == 0) {
    if (chdir(run.dir().c_str()) != 0 || dup2(ends[1], 1) < 0) _exit(127);
    close(ends[0]);
    close(ends[1]);
    execl(ASHLAR_BINARY, "ashlar", "train", "tiny.toml", override_dir.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  char first = 0;
  const ssize_t n = read(ends[0], &first, 1);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  char rest[4096];
  while (read(ends[0], rest, sizeof(rest)) > 0) {
  }
  close(ends[0]);
  EXPECT_EQ(RunFixture::wait_for(pid), 0);
  EXPECT_EQ(n, 1);
  return seconds;
}

TEST(Start, FirstLineComesWithinASecond) {
  const RunFixture run;
  double best = 1e9;
  for (int i = 0; i < 3; ++i) best = std::min(best, seconds_to_first_line(run, str_cat("r", i)));
  std::cout << "first line after " << best * 1e3 << " ms\n";
  EXPECT_LT(best, 1.0);
}

// "12.3 MB" as bytes.
double bytes_of(const std::string& number, const std::string& unit) {
  return std::stod(number) * (unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : 1e3);
}

const bool kSanitized = testing::under_address_sanitizer();

// The run's own account: "memory: peak of the process PEAK = part + part ... + other REST" (or "- untouched REST"),
// which adds up; the kernel's word is the peak, and the rest is small.
void expect_memory_is_named(const RunFixture& run, const std::string& overrides) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer has memory of its own, which no run can name";
  const ShellResult r = run.ashlar("train tiny.toml train.steps=8 checkpoint.every=0 " + overrides);
  ASSERT_EQ(r.code, 0) << r.err;
  std::smatch all;
  ASSERT_TRUE(
      std::regex_search(r.out, all, std::regex(R"(memory: peak of the process ([0-9.]+) (KB|MB|GB) = ([^\n]*))")))
      << r.out;
  const double peak = bytes_of(all[1], all[2]);
  double sum = 0, rest = 0;
  const std::string list = all[3];
  const std::regex part(R"(([-+] )?([a-z_]+) ([0-9.]+) (KB|MB|GB))");
  for (std::sregex_iterator at(list.begin(), list.end(), part), end; at != end; ++at) {
    const double bytes = ((*at)[1] == "- " ? -1 : 1) * bytes_of((*at)[3], (*at)[4]);
    sum += bytes;
    if ((*at)[2] == "other" || (*at)[2] == "untouched") rest = bytes;
  }
  EXPECT_NEAR(peak, sum, 0.01 * peak + 1e5) << "the parts do not add up: " << all[0];
  EXPECT_NE(rest, 0) << all[0];
  EXPECT_NEAR(rest, 0, 0.02 * peak + 16e6) << all[0];
  // The last step's row has the same peak, read from the kernel as well.
  std::string last;
  std::istringstream rows(run.read("run/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);)
    if (line.find("peak_memory_bytes") != std::string::npos) last = line;
  EXPECT_LE(nlohmann::json::parse(last).at("peak_memory_bytes").get<double>(), peak * 1.01 + 1e5);
  std::cout << all[0] << "\n";
}

TEST(Start, MemoryOfASmallRunIsNamed) { expect_memory_is_named(RunFixture(), ""); }

TEST(Start, MemoryOfALargerRunIsNamed) {
  expect_memory_is_named(RunFixture(),
                         "run.dtype=bf16 model.d_model=384 model.n_layers=4 model.n_heads=6 "
                         "model.d_ff=1024 train.sequence_length=128 data.document_mask=true");
}

TEST(Start, SteadyStepsAskTheSystemForNoMemory) {
  const RunFixture run;
  for (const char* options : {"", "run.dtype=bf16", "train.recompute=block", "train.micro_batch=1 dropout.embed=0.1"}) {
    SCOPED_TRACE(options);
    const ShellResult r = run.ashlar(str_cat("bench step tiny.toml --steps 6 --warmup 2 --json ", options));
    ASSERT_EQ(r.code, 0) << r.err;
    const auto row = nlohmann::json::parse(r.out);
    EXPECT_EQ(row.at("allocator_calls").get<int64_t>(), 0) << r.out;
    EXPECT_GT(row.at("step_ms").get<double>(), 0);
    EXPECT_GT(row.at("peak_memory_bytes").get<int64_t>(), 1'000'000);
  }
}

// Only training saves before it stops; Ctrl-C ends everything else at once.
TEST(Start, ASignalEndsWhatSavesNothing) {
  const RunFixture run;
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const char* command : {"bench step tiny.toml --steps 100000",
                                "launch -np 2 bench step tiny.toml vocab.pad_to=2 "
                                "mesh.tensor=2 run.threads=1 --steps 100000"}) {
      SCOPED_TRACE(command);
      const pid_t pid = run.start(command, "log");
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const auto begin = std::chrono::steady_clock::now();
      kill(pid, signal);
      EXPECT_NE(RunFixture::wait_for(pid), 0);
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5);
    }
  }
}

// The parallel block adds its two branches before one exit: half the sums of hidden rows on the tensor ranks.
TEST(Start, BenchComparesVariantsInTurns) {
  const RunFixture run;
  const ShellResult r = run.ashlar(
      "launch -np 2 bench step tiny.toml vocab.pad_to=2 mesh.tensor=2 train.micro_batch=4 run.threads=1 --steps 2 "
      "--compare block.topology=serial,parallel --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto rows = nlohmann::json::parse(r.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("variant"), "block.topology=serial");
  const auto sums = [&](size_t i) { return rows[i].at("traffic").at("tensor").at("operations").get<int64_t>(); };
  // Three layers: three sums less forward and three less backward; what embedding and head need stays.
  EXPECT_EQ(sums(0) - sums(1), 6);
  EXPECT_LT(rows[1].at("gemms"), rows[0].at("gemms"));
  EXPECT_EQ(run.ashlar("bench step tiny.toml --compare block.topology=serial").code, 2);
}

}  // namespace
}  // namespace ashlar::testing
