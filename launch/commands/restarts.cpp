#include "launch/commands/restarts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "launch/commands/arguments.h"
#include "launch/commands/launch_events.h"
#include "launch/commands/train_from.h"
#include "launch/config/run_config.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::launch {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRestart = "--restart";

std::optional<uint64_t> inode_of(const fs::path& path) {
  const std::optional<io::FileStamp> stamp = io::file_stamp(path);
  return stamp ? std::optional(stamp->inode) : std::nullopt;
}

std::optional<io::FileStamp> stamp_of_metrics(const fs::path& run_dir) {
  return io::file_stamp(run_dir / "metrics.jsonl");
}

int64_t newest_step(const fs::path& run_dir) {
  const std::vector<checkpoint::Found> all = checkpoint::list(run_dir);
  return all.empty() ? 0 : all.back().step;
}

std::chrono::milliseconds backoff(int64_t in_a_row) {
  return std::chrono::seconds(std::min<int64_t>(60, int64_t{1} << std::min<int64_t>(in_a_row - 1, 6)));
}

}  // namespace

RunProgress::RunProgress(fs::path run_dir)
    : run_dir_(std::move(run_dir)), inode_(inode_of(run_dir_)), committed_(newest_step(run_dir_)) {
  count_rows(committed_);
  goodput_ = {};
  stamp_ = stamp_of_metrics(run_dir_);
}

bool RunProgress::renewed() const { return inode_of(run_dir_) != inode_; }

void RunProgress::count_rows(int64_t up_to) {
  const fs::path file = run_dir_ / "metrics.jsonl";
  std::error_code none;
  if (fs::file_size(file, none) < read_to_ || none) read_to_ = 0;
  std::ifstream in(file);
  in.seekg(static_cast<std::streamoff>(read_to_));
  uint64_t at = read_to_;
  bool stays = true;  // true until a row of a step after `up_to` is read
  for (std::string line; std::getline(in, line) && !in.eof();) {
    at += line.size() + 1;
    const auto row = io::try_parse_json(line).value_or(nlohmann::json());
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    const bool kept = row["step"].get<int64_t>() <= up_to;
    stays = stays && kept;
    if (stays) read_to_ = at;
    if (!row.contains("loss")) continue;
    const double seconds =
        row.contains("step_ms") && row["step_ms"].is_number() ? row["step_ms"].get<double>() / 1e3 : 0;
    ++goodput_.made_steps;
    if (!kept) continue;
    ++goodput_.kept_steps;
    goodput_.kept_seconds += seconds;
  }
}

void RunProgress::look() {
  if (renewed()) {
    inode_ = inode_of(run_dir_);
    read_to_ = 0;
  }
  committed_ = newest_step(run_dir_);
  // If this attempt has written nothing, the rows after the checkpoint are from the previous attempt. They have been
  // counted already, so they are not read again.
  if (stamp_of_metrics(run_dir_) != stamp_) count_rows(committed_);
  stamp_ = stamp_of_metrics(run_dir_);
  goodput_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

void RunProgress::append(const std::string& json) {
  const int fd = open((run_dir_ / "metrics.jsonl").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  const std::string line = json + "\n";
  [[maybe_unused]] const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
  stamp_ = stamp_of_metrics(run_dir_);
}

fs::path run_directory_of(std::span<const std::string> words) {
  Arguments arguments("train", words);
  arguments.flag(kRestart);
  const std::optional<std::string> from = arguments.option("--from");
  while (arguments.option("--ignore-key")) {  // ignored here: the import by `train` uses it
  }
  std::vector<std::string> files = arguments.positionals();
  std::vector<std::string> overrides = take_overrides(files);
  if (from) {
    constexpr std::string_view kRunDir = "run.dir=";
    Log silent([](std::string_view) {});
    const TrainFrom begun = train_from({.hf_directory = *from, .overrides = overrides}, false, silent);
    overrides.insert(overrides.begin(), begun.overrides.begin(), begun.overrides.end());
    for (auto word = overrides.rbegin(); word != overrides.rend(); ++word)
      if (word->starts_with(kRunDir)) return word->substr(kRunDir.size());
  }
  arguments.expect(files, 1, "one configuration file", "; usage: ashlar train CONFIG [section.key=value ...]");
  if (fs::is_directory(files[0])) return files[0];
  const std::string run_dir = config::read_config(files[0], overrides).run_dir();
  if (run_dir.empty())
    throw input_error("launch", "--restarts needs the run directory, but run.dir of ", printable(files[0]),
                      " is invalid; run \"ashlar params ", printable(files[0]),
                      "\" with the same overrides to see the error");
  return run_dir;
}

int keep_alive(const RestartArgs& args) {
  RunProgress progress(args.run_dir);
  const RunProgress before(args.run_dir);
  std::vector<std::string> words = args.words;
  int64_t in_a_row = 0, restarts = 0;
  while (true) {
    const bool stood = before.renewed();
    const int64_t committed = progress.committed();
    const int code = args.run(words);
    const bool stands = before.renewed();
    const bool again = code == static_cast<int>(ExitCode::kPeerLost) && !args.asked_to_end();
    progress.look();
    if (progress.committed() > (stands && !stood ? 0 : committed)) in_a_row = 0;
    if (restarts > 0 || again) progress.append(to_json(RunGoodput{progress.committed(), restarts, progress.goodput()}));
    if (!again || in_a_row >= args.restarts) {
      if (again) args.say(restarts_ended(args.restarts, progress.committed()));
      args.say(to_line(RunGoodput{progress.committed(), restarts, progress.goodput()}));
      return code;
    }
    ++in_a_row;
    ++restarts;
    // --restart applies only until the new run directory exists.
    if (stands) std::erase(words, kRestart);
    args.say(run_restarted(restarts, progress.committed(), backoff(in_a_row)));
    if (args.wait(backoff(in_a_row))) {
      args.say(to_line(RunGoodput{progress.committed(), restarts, progress.goodput()}));
      return code;
    }
  }
}

}  // namespace ashlar::launch
