#include "tests/launch/run_fixture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/base/philox.h"
#include "core/base/strings.h"

namespace ashlar::testing {

namespace {

// Text with structure to learn: words drawn from a short list.
std::string some_text(int64_t words) {
  const char* const kWords[] = {"stone ", "laid ", "in ",   "courses ", "cut ", "so ",      "true ",
                                "that ",  "the ",  "wall ", "needs ",   "no ",  "mortar.\n"};
  std::string text;
  for (int64_t i = 0; i < words; ++i) text += kWords[Philox::block(11, 0, i)[0] % std::size(kWords)];
  return text;
}

// A row that is still being written has no end.
std::vector<nlohmann::json> rows_of(const std::filesystem::path& metrics) {
  std::vector<nlohmann::json> rows;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line) && !in.eof();) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

}  // namespace

RunFixture::RunFixture(std::string program) : program_(std::move(program)) {
  // Without the device that a user of this machine has measured, whose times runs would print.
  setenv("XDG_CACHE_HOME", (dir() / "cache").c_str(), 1);
  write("text.txt", some_text(8000));
  write(
      "tiny.toml",
      "[run]\ndtype = \"fp32\"\nthreads = 1\ndir = \"run\"\nseed = 3\n"
      "[model]\nd_model = 16\nn_layers = 3\nn_heads = 2\nd_ff = 24\n"
      "[dropout]\nresid = 0.1\nattn = 0.1\n"
      "[train]\nsteps = 60\nsequence_length = 16\nglobal_batch = 4\nmicro_batch = 2\neval_every = 20\neval_sequences = "
      "6\n"
      "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 5\n"
      "[data]\npath = \"data\"\n[checkpoint]\nevery = 3\nkeep = 2\n");
  const ShellResult built = ashlar("data build text.txt --out data --tokenizer bytes");
  if (built.code != 0) throw std::runtime_error("no dataset: " + built.err);
}

ShellResult RunFixture::ashlar(const std::string& words, const std::string& variables) const {
  return run_shell("cd " + shell_quote(dir().string()) + " && exec env " + variables + " " + shell_quote(program_) +
                   " " + words);
}

pid_t RunFixture::start(const std::string& words, const std::string& log, const std::string& variables) const {
  const std::string script = "cd " + shell_quote(dir().string()) + " && exec env " + variables + " " +
                             shell_quote(program_) + " " + words + " >>" + shell_quote(log) + " 2>&1";
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGINT, SIG_DFL);  // ignored by what runs in the background of a script, and inherited
    execl("/bin/bash", "bash", "-c", script.c_str(), nullptr);
    _exit(127);
  }
  if (pid < 0) throw std::runtime_error("fork failed");
  return pid;
}

int RunFixture::wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::optional<pid_t> RunFixture::find_rank_process(int rank) const {
  const std::string variable = str_cat("OMPI_COMM_WORLD_RANK=", rank);
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    if (std::filesystem::read_symlink(entry.path() / "cwd", gone) != dir() || gone) continue;
    std::ifstream environment(entry.path() / "environ");
    for (std::string word; std::getline(environment, word, '\0');)
      if (word == variable) return static_cast<pid_t>(std::stol(entry.path().filename().string()));
  }
  return {};
}

pid_t RunFixture::rank_process(int rank) const {
  if (const auto found = find_rank_process(rank)) return *found;
  throw std::runtime_error(str_cat("no rank ", rank, " runs in ", dir().string()));
}

std::vector<std::string> RunFixture::exact_metrics(const std::string& run_dir) const {
  std::vector<std::string> rows;
  for (const nlohmann::json& row : rows_of(dir() / run_dir / "metrics.jsonl")) {
    if (row.contains("save_ms")) continue;  // a time
    std::string text = row.at("step").dump();
    for (const char* key : {"loss", "grad_norm", "lr", "tokens", "val_loss"}) {
      if (row.contains(key)) text += str_cat(" ", key, " ", row.at(key).dump());
    }
    rows.push_back(text);
  }
  return rows;
}

std::vector<double> RunFixture::metric(const std::string& run_dir, const std::string& key) const {
  std::vector<double> values;
  for (const nlohmann::json& row : rows_of(dir() / run_dir / "metrics.jsonl")) {
    if (row.contains(key)) values.push_back(row.at(key));
  }
  return values;
}

void RunFixture::expect_same_metrics(const std::string& run_dir, const std::string& reference, double bound) const {
  for (const char* key : {"loss", "grad_norm", "val_loss"}) {
    const std::vector<double> got = metric(run_dir, key), expected = metric(reference, key);
    ASSERT_EQ(got.size(), expected.size()) << run_dir << " " << key;
    ASSERT_FALSE(got.empty());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], bound * std::abs(expected[i])) << run_dir << " " << key << " " << i;
  }
}

std::string RunFixture::read(const std::string& file) const {
  std::ifstream in(dir() / file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void RunFixture::write(const std::string& file, const std::string& text) const { std::ofstream(dir() / file) << text; }

}  // namespace ashlar::testing
