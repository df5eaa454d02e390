#include "launch/training/tensorboard_sink.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/strings.h"
#include "data/tokenizer/utf8_repair.h"
#include "launch/training/tensorboard_events.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// Returns the path of a new event file. TensorBoard reads the files of a directory in the order of their names, so its
/// number is higher than all that are there.
std::filesystem::path new_file(const std::filesystem::path& dir, double time) {
  auto number = static_cast<int64_t>(time);
  std::error_code none;  // opening the file reports what is wrong with the directory
  for (const auto& entry : std::filesystem::directory_iterator(dir, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t found = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), found);
    number = std::max(number, found + 1);
  }
  return dir / str_cat(kPrefix, number, ".", comm::Bootstrap::host_name(), ".", getpid());
}

}  // namespace

TensorBoardSink::TensorBoardSink(const Args& args)
    : clock_(args.clock),
      file_({.path = new_file(args.dir, args.clock()),
             .where = "tensorboard",
             .entries = "events",
             .log = args.log,
             .check = {}}) {
  file_.append(version_record(clock_()));
  if (args.completed_steps > 0) file_.append(start_record(clock_(), args.completed_steps + 1));
  file_.append(text_record(clock_(), args.completed_steps, "config", str_cat("```toml\n", args.config_toml, "```\n")));
}

void TensorBoardSink::step(const StepEvent& e) {
  const StepResult& r = e.result;
  std::vector<Scalar> scalars = {{"train/loss", r.loss},
                                 {"train/grad_norm", r.grad_norm},
                                 {"train/lr", e.lr},
                                 {"train/tokens", static_cast<double>(e.tokens)},
                                 {"train/z_loss", r.z_loss},
                                 {"train/mean_log_z", r.mean_log_z},
                                 {"train/max_log_z", r.max_log_z},
                                 {"train/max_logit", r.max_logit},
                                 {"train/clip_scale", r.clip_scale},
                                 {"speed/step_ms", e.step_ms},
                                 {"speed/tokens_per_sec", e.tokens_per_sec},
                                 {"speed/data_wait_ms", e.data_wait_ms},
                                 {"speed/peak_memory_bytes", static_cast<double>(e.peak_memory_bytes)}};
  for (const auto& [metric, value] : r.layers) scalars.push_back({"train/" + metric, value});
  // Negative: not known.
  const auto add_known = [&](const char* tag, double value) {
    if (value >= 0) scalars.push_back({tag, value});
  };
  add_known("speed/mfu", e.mfu);
  add_known("speed/mfu_causal", e.mfu_causal);
  add_known("gpu/memory_bytes", static_cast<double>(e.gpu_memory_bytes));
  add_known("gpu/mhz", static_cast<double>(e.gpu.sm_mhz));
  add_known("gpu/watts", e.gpu.watts);
  file_.append(scalars_record(clock_(), e.step, scalars));
}

void TensorBoardSink::validation(const ValidationEvent& e) {
  if (!e.result || e.result->sources.empty()) return;
  std::vector<Scalar> scalars = {{"val/loss", e.result->loss}};
  if (e.result->bits_per_byte) scalars.push_back({"val/bpb", *e.result->bits_per_byte});
  if (e.result->mixture) {
    for (const SourceLoss& s : e.result->sources) {
      scalars.push_back({"val/loss/" + s.path, s.loss});
      if (const auto bits = s.bits_per_byte()) scalars.push_back({"val/bpb/" + s.path, *bits});
    }
  }
  file_.append(scalars_record(clock_(), e.step, scalars));
}

void TensorBoardSink::sample(const SampleEvent& e) {
  // A block of text without a fence, since the text itself may have one.
  std::string block = "    ";
  for (const char c : e.prompt + e.text) block += c == '\n' ? std::string("\n    ") : std::string(1, c);
  int64_t places = 0;
  file_.append(text_record(clock_(), e.step, "sample", data::repaired(block, true, places) + "\n"));
}

void TensorBoardSink::tasks(const TasksEvent& e) {
  if (!e.scores) return;
  std::vector<Scalar> scalars;
  for (const TaskScore& score : *e.scores)
    for (const TaskMetric& m : score.metrics) scalars.push_back({str_cat("tasks/", score.task, "/", m.name), m.value});
  file_.append(scalars_record(clock_(), e.step, scalars));
}

void TensorBoardSink::statistics(const StatisticsEvent& e) {
  std::vector<Scalar> scalars;
  for (const StatisticsEvent::OfTensor& t : e.tensors) {
    scalars.push_back({"weight_rms/" + t.name, t.weight_rms});
    scalars.push_back({"grad_rms/" + t.name, t.grad_rms});
  }
  for (size_t i = 0; i < e.residual_rms.size(); ++i)
    scalars.push_back({i == 0 ? "output_rms/embed" : str_cat("output_rms/blocks.", i - 1), e.residual_rms[i]});
  for (const ExpertLoad& load : e.experts) {
    scalars.push_back({str_cat("experts/max_over_mean/blocks.", load.layer), load.max_over_mean});
    scalars.push_back({str_cat("experts/idle/blocks.", load.layer), static_cast<double>(load.idle)});
    if (!load.bias_range) continue;
    scalars.push_back({str_cat("experts/bias_min/blocks.", load.layer), load.bias_range->first});
    scalars.push_back({str_cat("experts/bias_max/blocks.", load.layer), load.bias_range->second});
  }
  file_.append(scalars_record(clock_(), e.step, scalars));
}

}  // namespace ashlar::training
