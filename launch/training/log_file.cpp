#include "launch/training/log_file.h"

#include <chrono>
#include <exception>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "core/base/strings.h"

namespace ashlar::training {

namespace {

std::string line_of(std::chrono::system_clock::time_point time, std::string_view text) {
  return str_cat(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ ", absl::FromChrono(time), absl::UTCTimeZone()), text, "\n");
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& path, Log& log, std::function<void()> check)
    : log_(log),
      check_(std::move(check)),
      file_({.path = path, .where = "train.log", .entries = "lines", .log = log, .check = {}}) {
  log_.copy_to([this](const Log::Line& line) { append(line_of(line.time, line.text)); });
}

LogFile::~LogFile() { log_.copy_to({}); }

void LogFile::append(std::string line) {
  try {
    if (check_) check_();
  } catch (const std::exception&) {
    return;  // not an error of whoever logs; the next row of metrics.jsonl ends the run
  }
  file_.append(std::move(line));
}

void LogFile::error(const ErrorEvent& e) {
  append(line_of(std::chrono::system_clock::now(), str_cat("error: ", e.text)));
}

}  // namespace ashlar::training
