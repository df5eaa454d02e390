#include "launch/training/events_file.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launch/version/version.h"

namespace ashlar::training {

namespace {

nlohmann::ordered_json row_of(std::string_view event, double time) { return {{"time", time}, {"event", event}}; }

/// Texts of the system, such as paths, may have bytes that are not UTF-8; JSON gets a replacement character for each.
std::string line_of(const nlohmann::ordered_json& row) {
  return row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

EventsFile::EventsFile(const std::filesystem::path& path, Log& log, std::function<void()> check,
                       std::function<double()> clock)
    : clock_(std::move(clock)),
      file_({.path = path, .where = "events", .entries = "lines", .log = log, .check = std::move(check)}) {}

void EventsFile::start(const StartEvent& e) {
  auto row = row_of(e.step > 0 ? "resume" : "start", clock_());
  row["step"] = e.step;
  row["version"] = launch::version();
  row["commit"] = launch::commit();
  row["compilers"] = launch::compilers();
  row["ranks"] = e.ranks;
  row["device"] = std::string(name_of(e.config.run.device));
  row["dtype"] = std::string(name_of(e.config.run.dtype));
  if (!e.changes.empty()) row["changes"] = e.changes;
  file_.append(line_of(row));
}

void EventsFile::save(const SaveEvent& e) {
  auto row = row_of("save", clock_());
  row["step"] = e.step;
  row["ms"] = e.ms;
  file_.append(line_of(row));
}

void EventsFile::warning(const WarningEvent& e) {
  auto row = row_of(is_note(e) ? "note" : "warning", clock_());
  row["text"] = to_line(e);
  file_.append(line_of(row));
}

void EventsFile::end(const EndEvent& e) {
  auto row = row_of("end", clock_());
  row["step"] = e.step;
  row["steps"] = e.total_steps;
  if (e.signal) row["signal"] = *e.signal;
  file_.append(line_of(row));
}

void EventsFile::error(const ErrorEvent& e) {
  auto row = row_of("error", clock_());
  row["step"] = e.step;
  row["code"] = static_cast<int>(e.code);
  row["text"] = e.text;
  file_.append(line_of(row));
}

}  // namespace ashlar::training
