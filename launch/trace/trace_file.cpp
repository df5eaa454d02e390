#include "launch/trace/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/checksum.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::trace {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// A file that is not as it was written; the text says what is wrong.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* kFormat = "ashlar-trace";
constexpr int64_t kVersion = 1;
constexpr std::string_view kPrefix = "step-", kSuffix = ".json";

template <NamedEnum E>
json name_list() {
  json names = json::array();
  for (const EnumName<E>& row : names_of(E{})) names.push_back(row.name);
  return names;
}

/// Reads numbers of a file as values of an enum, by the list of names in the file.
template <NamedEnum E>
class Names {
 public:
  explicit Names(const json& names) {
    for (const json& name : names) {
      E value{};
      if (!parse_enum(name.get<std::string>(), value))
        throw Problem(str_cat("unknown name ", printable(name.get<std::string>())));
      values_.push_back(value);
    }
  }
  E of(const json& number) const { return values_.at(number.get<size_t>()); }

 private:
  std::vector<E> values_;
};

/// Appends the items as a list of rows: "[[1,2],[3,4]]".
template <typename Items, typename Row>
void add_rows(std::string& text, const char* name, const Items& items, const Row& row) {
  text += str_cat(",\"", name, "\":[");
  bool first = true;
  for (const auto& item : items) {
    text += first ? "[" : ",[";
    row(item);
    text += "]";
    first = false;
  }
  text += "]";
}

std::string message_text(const std::optional<pipeline::Message>& message) {
  if (!message) return "null";
  return str_cat("[", static_cast<int>(message->payload), ",", message->micro_batch, ",", message->chunk, "]");
}

std::optional<pipeline::Message> message_of(const json& row, const Names<pipeline::Payload>& payloads) {
  if (row.is_null()) return std::nullopt;
  return pipeline::Message{
      .payload = payloads.of(row.at(0)), .micro_batch = row.at(1).get<int64_t>(), .chunk = row.at(2).get<int64_t>()};
}

Interval interval_of(const json& row, size_t at) {
  const Interval time{row.at(at).get<int64_t>(), row.at(at + 1).get<int64_t>()};
  if (time.end < time.begin) throw Problem("a slice ends before it begins");
  return time;
}

/// Reads the ranks of a file.
class RankReader {
 public:
  explicit RankReader(const json& j)
      : parts_(j.at("part_names")),
        actions_(j.at("action_names")),
        payloads_(j.at("payload_names")),
        operations_(j.at("operation_names")) {}

  RankTrace read(const json& j) const {
    RankTrace rank{.host = j.at("host").get<std::string>(),
                   .clock_offset = j.at("clock_offset").get<int64_t>(),
                   .clock_uncertainty = j.at("clock_uncertainty").get<int64_t>(),
                   .dropped = j.at("dropped").get<int64_t>(),
                   .communicators = j.at("communicators").get<std::vector<std::string>>()};
    for (const json& row : j.at("parts")) rank.parts.push_back({parts_.of(row.at(0)), interval_of(row, 1)});
    for (const json& row : j.at("actions")) rank.actions.push_back({action_of(row), interval_of(row, 1)});
    for (const json& row : j.at("operations")) rank.operations.push_back(operation_of(row, rank));
    for (const json& row : j.at("calls")) rank.calls.push_back(operation_of(row, rank));
    return rank;
  }

 private:
  pipeline::Action action_of(const json& row) const {
    pipeline::Action action{.kind = actions_.of(row.at(0))};
    if (action.kind == pipeline::ActionKind::kTransfer) {
      action.peer = row.at(3).get<int64_t>();
      action.send = message_of(row.at(4), payloads_);
      action.receive = message_of(row.at(5), payloads_);
    } else {
      action.micro_batch = row.at(3).get<int64_t>();
      action.chunk = row.at(4).get<int64_t>();
    }
    return action;
  }
  OperationSlice operation_of(const json& row, const RankTrace& rank) const {
    const OperationSlice slice{.kind = operations_.of(row.at(0)),
                               .communicator = row.at(3).get<int64_t>(),
                               .bytes = row.at(4).get<int64_t>(),
                               .time = interval_of(row, 1)};
    if (slice.communicator < 0 || slice.communicator >= std::ssize(rank.communicators))
      throw Problem("an operation has no communicator");
    return slice;
  }

  Names<Part> parts_;
  Names<pipeline::ActionKind> actions_;
  Names<pipeline::Payload> payloads_;
  Names<comm::OperationKind> operations_;
};

/// Checks that indices lie within the mesh and the schedule.
void check_ranges(const StepTrace& step) {
  const pipeline::ScheduleSpec& spec = step.schedule;
  if (std::ssize(step.ranks) != step.mesh.ranks() || spec.stages != step.mesh[Axis::kPipeline])
    throw Problem("the ranks are not those of the mesh");
  const auto within = [&](int64_t micro_batch, int64_t chunk) {
    return micro_batch >= 0 && micro_batch < spec.micro_batches && chunk >= 0 && chunk < spec.virtual_stages;
  };
  for (const RankTrace& rank : step.ranks) {
    for (const ActionSlice& slice : rank.actions) {
      const pipeline::Action& a = slice.action;
      const bool transfer = a.kind == pipeline::ActionKind::kTransfer;
      const bool right = transfer ? a.peer >= 0 && a.peer < spec.stages : within(a.micro_batch, a.chunk);
      if (!right) throw Problem("an action is not of the schedule");
    }
  }
}

StepTrace parse(const std::string& body) {
  const json j = io::parse_json(body);
  StepTrace step{.step = j.at("step").get<int64_t>(),
                 .unix_time = j.at("time").get<double>(),
                 .asynchronous = j.at("asynchronous").get<bool>()};
  for (const auto& [axis, name] : kAxisNames) step.mesh[axis] = j.at("mesh").at(std::string(name)).get<int64_t>();
  const json& schedule = j.at("schedule");
  if (!parse_enum(schedule.at("kind").get<std::string>(), step.schedule.kind)) throw Problem("unknown schedule");
  step.schedule.stages = schedule.at("stages").get<int64_t>();
  step.schedule.micro_batches = schedule.at("micro_batches").get<int64_t>();
  step.schedule.virtual_stages = schedule.at("virtual_stages").get<int64_t>();
  const RankReader reader(j);
  for (const json& rank : j.at("ranks")) step.ranks.push_back(reader.read(rank));
  check_ranges(step);
  return step;
}

/// Compares the body with the header, which is the first line.
std::string checked_body(const std::string& text, const fs::path& path) {
  const size_t end = text.find('\n');
  const json header = io::parse_json(text.substr(0, end));
  if (header.at("format") != kFormat) throw Problem("it is no trace");
  const auto version = header.at("version").get<int64_t>();
  if (version > kVersion)
    throw input_error("trace", printable(path.string()), ": expected version ", kVersion, " or older, got ", version,
                      "; use the program that wrote it");
  std::string body = end == std::string::npos ? "" : text.substr(end + 1);
  if (header.at("bytes").get<size_t>() != body.size() || header.at("crc32").get<uint32_t>() != io::crc32(body))
    throw Problem("its content does not match its checksum");
  return body;
}

}  // namespace

fs::path folder_of(const fs::path& run_dir) { return run_dir / "trace"; }

fs::path file_of(const fs::path& run_dir, int64_t step) {
  return folder_of(run_dir) / absl::StrFormat("%s%08d%s", kPrefix, step, kSuffix);
}

std::vector<int64_t> traced_steps(const fs::path& run_dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(run_dir), error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::string_view digits =
        std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    if (const auto step = parse_number<int64_t>(digits)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string rank_text(const RankTrace& rank, const std::function<int64_t(int64_t)>& on_first_rank) {
  std::string text = str_cat("{\"host\":", json(rank.host).dump(), ",\"clock_offset\":", rank.clock_offset,
                             ",\"clock_uncertainty\":", rank.clock_uncertainty, ",\"dropped\":", rank.dropped,
                             ",\"communicators\":", json(rank.communicators).dump());
  const auto begin = [&](int index, const Interval& time) {
    text += str_cat(index, ",", on_first_rank(time.begin), ",", on_first_rank(time.end));
  };
  const auto operation = [&](const OperationSlice& slice) {
    begin(static_cast<int>(slice.kind), slice.time);
    text += str_cat(",", slice.communicator, ",", slice.bytes);
  };
  add_rows(text, "parts", rank.parts, [&](const PartSlice& slice) { begin(static_cast<int>(slice.part), slice.time); });
  add_rows(text, "actions", rank.actions, [&](const ActionSlice& slice) {
    const pipeline::Action& a = slice.action;
    begin(static_cast<int>(a.kind), slice.time);
    if (a.kind == pipeline::ActionKind::kTransfer)
      text += str_cat(",", a.peer, ",", message_text(a.send), ",", message_text(a.receive));
    else
      text += str_cat(",", a.micro_batch, ",", a.chunk);
  });
  add_rows(text, "operations", rank.operations, operation);
  add_rows(text, "calls", rank.calls, operation);
  return text + "}";
}

std::string file_text(const StepTrace& step, std::span<const std::string> ranks) {
  json mesh;
  for (const auto& [axis, name] : kAxisNames) mesh[std::string(name)] = step.mesh[axis];
  const json head = {{"step", step.step},
                     {"time", step.unix_time},
                     {"mesh", mesh},
                     {"schedule",
                      {{"kind", name_of(step.schedule.kind)},
                       {"stages", step.schedule.stages},
                       {"micro_batches", step.schedule.micro_batches},
                       {"virtual_stages", step.schedule.virtual_stages}}},
                     {"asynchronous", step.asynchronous},
                     {"part_names", name_list<Part>()},
                     {"action_names", name_list<pipeline::ActionKind>()},
                     {"payload_names", name_list<pipeline::Payload>()},
                     {"operation_names", name_list<comm::OperationKind>()}};
  std::string body = head.dump();
  body.pop_back();  // the ranks continue the object
  body += ",\n\"ranks\":[";
  for (size_t i = 0; i < ranks.size(); ++i) body += str_cat(i == 0 ? "\n" : ",\n", ranks[i]);
  body += "]}\n";
  const json header = {{"format", kFormat}, {"version", kVersion}, {"bytes", body.size()}, {"crc32", io::crc32(body)}};
  return header.dump() + "\n" + body;
}

StepTrace read_step_trace(const fs::path& path) {
  const auto damaged = [&](const std::string& what) {
    return damaged_error("trace", printable(path.string()), ": ", what,
                         "; delete it and trace the step again (log.trace_steps)");
  };
  const std::string text = io::read_text_file(path, io::kAnySize);
  StepTrace step;
  try {
    io::reading_json(damaged, [&] { step = parse(checked_body(text, path)); });
  } catch (const Problem& problem) {
    throw damaged(problem.what());
  } catch (const std::out_of_range&) {  // a number beside its list of names
    throw damaged("a number is out of range");
  }
  return step;
}

}  // namespace ashlar::trace
