#include "launch/trace/chrome_trace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "launch/trace/step_summary.h"

namespace ashlar::trace {

namespace {

using nlohmann::json;
using pipeline::ActionKind;

constexpr int64_t kComputeThread = 0, kDataThread = 1, kFirstLane = 2;

/// Ids of processes and threads are shown beside their names. Those of threads must be unique over all processes, and a
/// thread with the id of its process is taken for the main thread.
int64_t pid_of(int64_t rank) { return 1000 * (rank + 1); }
int64_t tid_of(int64_t rank, int64_t thread) { return pid_of(rank) + thread; }

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', true, json::error_handler_t::replace); }

class Writer {
 public:
  Writer(const StepTrace& step, std::string title) : step_(step), title_(std::move(title)) {
    origin_ = std::numeric_limits<int64_t>::max();
    for (const RankTrace& rank : step.ranks) {
      for (const PartSlice& slice : rank.parts) origin_ = std::min(origin_, slice.time.begin);
      for (const OperationSlice& slice : rank.operations) origin_ = std::min(origin_, slice.time.begin);
    }
  }

  std::string write() {
    text_ = str_cat("{\"displayTimeUnit\":\"ms\",\"otherData\":", other_data(), ",\"traceEvents\":[");
    for (size_t r = 0; r < step_.ranks.size(); ++r) write_rank(static_cast<int64_t>(r), step_.ranks[r]);
    write_arrows();
    return text_ + "\n]}\n";
  }

 private:
  std::string other_data() const {
    int64_t uncertainty = 0;
    for (const RankTrace& rank : step_.ranks) uncertainty = std::max(uncertainty, rank.clock_uncertainty);
    return json({{"run", title_},
                 {"step", step_.step},
                 {"unix_time", step_.unix_time},
                 {"times", step_.asynchronous ? "of the host, which queues work that a device runs later"
                                              : "of the host, which runs the work"},
                 {"clock_uncertainty_us", static_cast<double>(uncertainty) / 1e3}})
        .dump(-1, ' ', true, json::error_handler_t::replace);
  }

  double us(int64_t ns) const { return static_cast<double>(ns - origin_) / 1e3; }

  void begin_event() { text_ += std::exchange(first_, false) ? "\n" : ",\n"; }

  void name_of_process(const char* what, int64_t rank, int64_t thread, const std::string& args) {
    begin_event();
    absl::StrAppendFormat(&text_, R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{%s}})", what, pid_of(rank),
                          tid_of(rank, thread), args);
  }
  void name_thread(int64_t rank, int64_t thread, const std::string& name) {
    name_of_process("thread_name", rank, thread, str_cat("\"name\":", quoted(name)));
    name_of_process("thread_sort_index", rank, thread, str_cat("\"sort_index\":", thread));
  }
  void slice(int64_t rank, int64_t thread, const Interval& time, const char* category, const std::string& name,
             const std::string& args = "") {
    begin_event();
    absl::StrAppendFormat(
        &text_, R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"cat":"%s","name":%s,"args":{%s}})", pid_of(rank),
        tid_of(rank, thread), us(time.begin), static_cast<double>(time.length()) / 1e3, category, quoted(name), args);
  }

  void write_rank(int64_t index, const RankTrace& rank) {
    name_of_process("process_name", index, 0, str_cat("\"name\":", quoted(rank_name(step_, index))));
    name_of_process("process_labels", index, 0, str_cat("\"labels\":", quoted(rank.host)));
    name_of_process("process_sort_index", index, 0, str_cat("\"sort_index\":", index));
    name_thread(index, kComputeThread, "compute");
    name_thread(index, kDataThread, "data");
    for (const PartSlice& part : rank.parts) {
      const bool data = part.part == Part::kData || part.part == Part::kDataWait;
      slice(index, data ? kDataThread : kComputeThread, part.time, "step", std::string(name_of(part.part)));
    }
    for (const ActionSlice& action : rank.actions) write_action(index, action);
    for (const OperationSlice& call : rank.calls)
      slice(index, kComputeThread, call.time, "call", operation_name(rank, call));
    write_operations(index, rank);
  }

  void write_action(int64_t rank, const ActionSlice& slice_of_action) {
    const pipeline::Action& a = slice_of_action.action;
    if (a.kind == ActionKind::kTransfer)
      return slice(rank, kComputeThread, slice_of_action.time, "transfer", pipeline::describe(a));
    std::string name = str_cat(name_of(a.kind), " ", a.micro_batch);
    if (step_.schedule.virtual_stages > 1) name += str_cat(" chunk ", a.chunk);
    slice(rank, kComputeThread, slice_of_action.time, "action", name,
          absl::StrFormat(R"("micro_batch":%d,"chunk":%d)", a.micro_batch, a.chunk));
  }

  static std::string operation_name(const RankTrace& rank, const OperationSlice& operation) {
    return str_cat(name_of(operation.kind), " on ", rank.communicators[static_cast<size_t>(operation.communicator)]);
  }

  /// Slices of one thread must not overlap, so each operation goes to the first thread that is free.
  void write_operations(int64_t index, const RankTrace& rank) {
    std::vector<OperationSlice> operations = rank.operations;
    std::ranges::stable_sort(operations, {}, [](const OperationSlice& o) { return o.time.begin; });
    std::vector<int64_t> free_from;
    for (const OperationSlice& operation : operations) {
      auto lane = std::ranges::find_if(free_from, [&](int64_t from) { return from <= operation.time.begin; });
      if (lane == free_from.end()) {
        const auto number = std::ssize(free_from) + 1;
        name_thread(index, kFirstLane + number - 1, number == 1 ? "communication" : str_cat("communication ", number));
        lane = free_from.insert(free_from.end(), 0);
      }
      *lane = operation.time.end;
      slice(index, kFirstLane + (lane - free_from.begin()), operation.time, "communication",
            operation_name(rank, operation), absl::StrFormat(R"("bytes":%d)", operation.bytes));
    }
  }

  struct Place {
    int64_t rank = 0;
    const ActionSlice* slice = nullptr;
  };

  void write_arrows() {
    using Key = std::tuple<int64_t, bool, int64_t, int64_t>;  // pipeline, forward, micro-batch, chunk of the model
    std::map<Key, Place> places;
    for (size_t r = 0; r < step_.ranks.size(); ++r) {
      const auto rank = static_cast<int64_t>(r);
      mesh::Coordinates at = mesh::coordinates_of(step_.mesh, rank);
      const int64_t group = mesh::index_of(step_.mesh, at, kAllAxes - AxisSet(Axis::kPipeline));
      for (const ActionSlice& s : step_.ranks[r].actions) {
        if (s.action.kind == ActionKind::kTransfer || s.action.kind == ActionKind::kBackwardWeight) continue;
        const int64_t chunk = pipeline::model_chunk(at[Axis::kPipeline], s.action.chunk, step_.schedule.stages);
        places[{group, s.action.kind == ActionKind::kForward, s.action.micro_batch, chunk}] = {rank, &s};
      }
    }
    for (const auto& [key, from] : places) {
      const auto& [group, forward, micro_batch, chunk] = key;
      const auto to = places.find({group, forward, micro_batch, forward ? chunk + 1 : chunk - 1});
      if (to != places.end() && to->second.rank != from.rank) write_arrow(from, to->second, forward);
    }
  }

  /// An arrow from the end of an action to the point where another one has what it waited for.
  void write_arrow(const Place& from, const Place& to, bool forward) {
    const Interval& time = to.slice->time;
    int64_t arrival = time.begin;
    for (const OperationSlice& call : step_.ranks[static_cast<size_t>(to.rank)].calls)
      if (call.between_stages() && call.time.begin >= time.begin && call.time.end <= time.end) arrival = call.time.end;
    const char* name = forward ? "activation" : "gradient";
    ++arrows_;
    const auto add = [&](const char* phase, int64_t rank, int64_t at, const char* more) {
      begin_event();
      absl::StrAppendFormat(&text_, R"({"ph":"%s","pid":%d,"tid":%d,"ts":%.3f,"cat":"pipeline","name":"%s","id":%d%s})",
                            phase, pid_of(rank), tid_of(rank, kComputeThread), us(at), name, arrows_, more);
    };
    add("s", from.rank, std::max(from.slice->time.begin, from.slice->time.end - 1), "");
    add("f", to.rank, std::min(arrival, std::max(time.begin, time.end - 1)), R"(,"bp":"e")");
  }

  const StepTrace& step_;
  const std::string title_;
  int64_t origin_ = 0, arrows_ = 0;
  bool first_ = true;
  std::string text_;
};

}  // namespace

std::string chrome_trace(const StepTrace& step, const std::string& title) { return Writer(step, title).write(); }

}  // namespace ashlar::trace
