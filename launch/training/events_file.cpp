#include "launch/training/events_file.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/io/json.h"
#include "launch/version/version.h"

namespace ashlar::training {

namespace {

std::vector<int64_t> steps_of(const std::vector<checkpoint::RankedStep>& best) {
  std::vector<int64_t> steps;
  for (const checkpoint::RankedStep& r : best) steps.push_back(r.step);
  return steps;
}

}  // namespace

EventsFile::EventsFile(const std::filesystem::path& path, Log& log, std::function<void()> check,
                       std::function<double()> clock)
    : clock_(std::move(clock)),
      file_({.path = path, .where = "events", .entries = "lines", .log = log, .check = std::move(check)}) {}

void EventsFile::append(std::string_view event, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json row = {{"time", clock_()}, {"event", event}};
  row.update(fields);
  // Texts of the system, such as paths, may have bytes that are not UTF-8; JSON gets a replacement character for each.
  file_.append(row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void EventsFile::start(const StartEvent& e) {
  nlohmann::ordered_json fields = {{"step", e.step},
                                   {"version", launch::version()},
                                   {"commit", launch::commit()},
                                   {"compilers", launch::compilers()},
                                   {"ranks", e.ranks},
                                   {"device", std::string(name_of(e.config.run.device))},
                                   {"dtype", std::string(name_of(e.config.run.dtype))}};
  if (!e.changes.empty()) fields["changes"] = e.changes;
  if (const auto plan = io::try_parse_json(e.plan)) fields["plan"] = *plan;
  append(e.step > 0 ? "resume" : "start", fields);
}

void EventsFile::save(const SaveEvent& e) {
  nlohmann::ordered_json fields = {{"step", e.step}, {"ms", e.ms}};
  if (e.val_loss) fields["val_loss"] = *e.val_loss;
  append("save", fields);
}

void EventsFile::saved(const SavedEvent& e) {
  nlohmann::ordered_json fields = {{"step", e.step}, {"bytes", e.bytes}, {"seconds", e.seconds}};
  if (!e.best.empty()) fields["best"] = steps_of(e.best);
  append("saved", fields);
}

void EventsFile::sample(const SampleEvent& e) {
  append("sample", {{"step", e.step}, {"prompt", e.prompt}, {"text", e.text}});
}

void EventsFile::warning(const WarningEvent& e) { append(is_note(e) ? "note" : "warning", {{"text", to_line(e)}}); }

void EventsFile::end(const EndEvent& e) {
  nlohmann::ordered_json fields = {{"step", e.step}, {"steps", e.total_steps}};
  if (e.signal) fields["signal"] = *e.signal;
  if (e.val_loss) fields["val_loss"] = *e.val_loss;
  if (e.val_bpb) fields["val_bpb"] = *e.val_bpb;
  if (!e.best.empty()) fields["best"] = steps_of(e.best);
  append("end", fields);
}

void EventsFile::error(const ErrorEvent& e) {
  append("error", {{"step", e.step}, {"code", static_cast<int>(e.code)}, {"text", e.text}});
}

}  // namespace ashlar::training
