#include "launch/training/metrics_file.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/io/atomic_file.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::training {

namespace {

struct StepOfRow {
  int64_t step = 0;
  bool validates = false, has_tasks = false;
};

/// Returns nothing for a line that is not a JSON object with an integer `step`.
std::optional<StepOfRow> step_of_row(const std::string& line) {
  const auto row = io::try_parse_json(line, io::JsonKeys::kUnique).value_or(nlohmann::json());
  if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return std::nullopt;
  const auto& step = row["step"];
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  if (step.is_number_unsigned() && step.get<uint64_t>() > static_cast<uint64_t>(kMost)) return std::nullopt;
  return StepOfRow{
      .step = step.get<int64_t>(), .validates = row.contains("val_loss"), .has_tasks = row.contains("tasks")};
}

/// Returns DIR/metrics.cut.jsonl for DIR/metrics.jsonl.
std::filesystem::path set_aside_file(std::filesystem::path path) {
  const std::string extension = path.extension().string();
  return path.replace_extension(".cut" + extension);
}

}  // namespace

std::string to_json(const StepEvent& r) {
  nlohmann::ordered_json j;
  j["step"] = r.step;
  j["loss"] = r.result.loss;
  j["grad_norm"] = r.result.grad_norm;
  j["lr"] = r.lr;
  j["tokens"] = r.tokens;
  j["step_ms"] = r.step_ms;
  j["tokens_per_sec"] = r.tokens_per_sec;
  const auto share = [](double v) { return v < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(v); };
  j["mfu"] = share(r.mfu);
  j["mfu_causal"] = share(r.mfu_causal);
  j["peak_memory_bytes"] = r.peak_memory_bytes;
  j["data_wait_ms"] = r.data_wait_ms;
  if (r.slowest.rank >= 0) {
    j["slowest_rank"] = r.slowest.rank;
    j["slowest_rank_ms"] = r.slowest.ms;
  }
  j["z_loss"] = r.result.z_loss;
  j["mean_log_z"] = r.result.mean_log_z;
  j["max_log_z"] = r.result.max_log_z;
  j["max_logit"] = r.result.max_logit;
  j["clip_scale"] = r.result.clip_scale;
  j["valid_targets"] = r.result.valid_targets;
  for (const auto& [metric, value] : r.result.layers) j[metric] = value;
  if (r.gpu_memory_bytes >= 0) j["gpu_memory_bytes"] = r.gpu_memory_bytes;
  if (r.gpu.sm_mhz >= 0) j["gpu_mhz"] = r.gpu.sm_mhz;
  if (r.gpu.watts >= 0) j["gpu_watts"] = r.gpu.watts;
  if (r.gpu.limits) j["gpu_held_by"] = *r.gpu.limits;
  return j.dump();
}

std::string to_json(const ValidationEvent& e) {
  const ValidationResult& result = *e.result;
  nlohmann::ordered_json j;
  j["step"] = e.step;
  j["val_loss"] = result.loss;
  if (result.bits_per_byte) j["val_bpb"] = *result.bits_per_byte;
  j["val_tokens"] = result.tokens;
  j["val_bytes"] = result.bytes;
  j["val_seconds"] = e.seconds;
  if (result.mixture) {
    for (const SourceLoss& s : result.sources) {
      nlohmann::ordered_json source = {{"path", s.path}, {"weight", s.weight}, {"val_loss", s.loss}};
      if (const auto bits = s.bits_per_byte()) source["val_bpb"] = *bits;
      source["val_tokens"] = s.tokens;
      source["val_bytes"] = s.bytes;
      j["val_sources"].push_back(std::move(source));
    }
  }
  return j.dump();
}

std::string to_json(const TasksEvent& e) {
  nlohmann::ordered_json j;
  j["step"] = e.step;
  for (const TaskScore& score : *e.scores) {
    nlohmann::ordered_json& task = j["tasks"][score.task];
    task["records"] = score.records;
    for (const TaskMetric& m : score.metrics) {
      task[m.name] = m.value;
      task[m.name + "_stderr"] = m.error;
    }
  }
  j["tasks_seconds"] = e.seconds;
  return j.dump();
}

std::string to_json(const StatisticsEvent& e) {
  nlohmann::ordered_json j;
  j["step"] = e.step;
  for (const auto& t : e.tensors) j["stats"][t.name] = {{"weight_rms", t.weight_rms}, {"grad_rms", t.grad_rms}};
  for (size_t i = 0; i < e.residual_rms.size(); ++i)
    j["stats"][i == 0 ? "embed" : str_cat("blocks.", i - 1)] = {{"output_rms", e.residual_rms[i]}};
  for (const ExpertLoad& load : e.experts) {
    nlohmann::ordered_json& layer = j["stats"][str_cat("blocks.", load.layer, ".moe")];
    layer = {{"counts", load.counts}, {"max_over_mean", load.max_over_mean}, {"idle", load.idle}};
    if (load.bias_range) layer["bias_range"] = {load.bias_range->first, load.bias_range->second};
  }
  return j.dump();
}

std::string to_json(const SaveEvent& e) { return str_cat("{\"step\":", e.step, ",\"save_ms\":", e.ms, "}"); }

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t completed_steps, Log& log,
                         std::function<void()> check, std::function<double()> clock)
    : clock_(std::move(clock)) {
  set_repeated_rows_aside(path, completed_steps, log);
  file_.emplace(HeldFile::Args{.path = path, .where = "metrics", .log = log, .check = std::move(check)});
}

void MetricsFile::set_repeated_rows_aside(const std::filesystem::path& path, int64_t completed_steps, Log& log) {
  for (const std::filesystem::path& file : {path, set_aside_file(path)}) {
    io::require_regular_file(file, "metrics");
    if (std::filesystem::is_directory(file))
      throw input_error("metrics", file.string(), ": expected a regular file, got a directory; move it away");
  }
  if (!std::filesystem::exists(path)) return;
  std::string kept, set_aside;
  std::vector<int64_t> odd;  // line numbers of lines that are not rows
  std::ifstream in(path);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const bool torn = in.eof();  // the file ends without a line break
    const std::optional<StepOfRow> row = torn ? std::nullopt : step_of_row(line);
    if (!torn && !row) odd.push_back(number);
    const bool again = torn || (row && row->step > completed_steps);
    if (row && !again && row->validates) last_validation_step_ = std::max(last_validation_step_, row->step);
    if (row && !again && row->has_tasks) last_tasks_step_ = std::max(last_tasks_step_, row->step);
    rows_set_aside_ += again ? 1 : 0;
    (again ? set_aside : kept) += line + "\n";
  }
  if (!odd.empty()) {
    log.warn(str_cat(path.string(), ": ", odd.size(), odd.size() == 1 ? " line is" : " lines are",
                     " not JSON with an integer \"step\"; such lines are kept unchanged: line ",
                     comma_list(std::span(odd).first(std::min<size_t>(odd.size(), 10))),
                     odd.size() > 10 ? ", ..." : ""));
  }
  if (!set_aside.empty()) {
    // Appends before it rewrites: a kill in between duplicates rows but loses none.
    io::append_durably(set_aside_file(path), set_aside);
    io::write_file_atomically(path, kept);
  }
}

void MetricsFile::append_now(const std::string& json) {
  append(absl::StrFormat("%s,\"time\":%.3f}", json.substr(0, json.size() - 1), clock_()));
}

void MetricsFile::validation(const ValidationEvent& event) {
  if (event.result && !event.result->sources.empty()) append_now(to_json(event));
}

void MetricsFile::tasks(const TasksEvent& event) {
  if (event.scores) append_now(to_json(event));
}

}  // namespace ashlar::training
