#include "launch/training/terminal_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/training/memory.h"

namespace ashlar::training {

namespace {

std::string grouped(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string percent(double share) { return share < 0 ? "n/a" : absl::StrFormat("%.1f%%", 100 * share); }

}  // namespace

std::string human_count(double n) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [size, unit] : kUnits)
    if (n >= 0.9995 * size)
      return absl::StrFormat("%.*f%s", n < 9.995 * size ? 2 : n < 99.95 * size ? 1 : 0, n / size, unit);
  return absl::StrFormat("%.0f", n);
}

std::string human_seconds(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return absl::StrFormat("%ds", s);
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

std::string to_line(const StepEvent& e) {
  const int width = static_cast<int>(std::to_string(e.total_steps).size());
  std::string gpu = to_text(e.gpu);
  if (e.gpu_memory_bytes >= 0) gpu = str_cat("gpu ", human_bytes(e.gpu_memory_bytes), gpu.empty() ? "" : "  ", gpu);
  return absl::StrFormat(
      "step %*d/%d  loss %.4f  grad_norm %.3f  lr %.2e  tokens %s  %.1f ms  %s tok/s  mfu %s  mem %s  data %.1f ms  "
      "eta %s%s",
      width, e.step, e.total_steps, e.result.loss, e.result.grad_norm, e.lr, grouped(e.tokens), e.step_ms,
      grouped(static_cast<int64_t>(e.tokens_per_sec)), percent(e.mfu), human_bytes(e.peak_memory_bytes), e.data_wait_ms,
      human_seconds(e.eta_sec), gpu.empty() ? "" : "  " + gpu);
}

std::string to_short_line(const StepEvent& e) {
  const int width = static_cast<int>(std::to_string(e.total_steps).size());
  const std::string limits = e.gpu.limits.value_or("");
  return absl::StrFormat("step %*d/%d  loss %.4f  grad_norm %.3g  lr %.2e  %s tok/s  mfu %s  eta %s%s", width, e.step,
                         e.total_steps, e.result.loss, e.result.grad_norm, e.lr, human_count(e.tokens_per_sec),
                         percent(e.mfu), human_seconds(e.eta_sec), limits.empty() ? "" : "  limited by " + limits);
}

std::string bpb_text(std::optional<double> bits) {
  return bits ? absl::StrFormat("val_bpb %.4f", *bits) : "val_bpb n/a (the targets stand for no text)";
}

std::vector<std::string> to_lines(const ValidationEvent& e) {
  if (!e.result) return {str_cat("step ", e.step, "  the validation was interrupted; its loss is not written")};
  const ValidationResult& r = *e.result;
  std::vector<std::string> lines;
  for (const UncountedSource& s : r.uncounted) lines.push_back(absl::StrFormat("step %d  %s", e.step, to_line(s)));
  if (r.sources.empty()) return lines;
  if (!r.mixture) {
    lines.push_back(absl::StrFormat("step %d  val_loss %.4f  %s  over %d tokens in %s", e.step, r.loss,
                                    bpb_text(r.bits_per_byte), r.tokens, human_seconds(e.seconds)));
    return lines;
  }
  for (const SourceLoss& s : r.sources)
    lines.push_back(absl::StrFormat("step %d  val_loss %.4f  %s  over %d tokens of %s, weight %g", e.step, s.loss,
                                    bpb_text(s.bits_per_byte()), s.tokens, s.path, s.weight));
  lines.push_back(absl::StrFormat("step %d  val_loss %.4f  %s  mean of %d datasets by weight, %d tokens in %s", e.step,
                                  r.loss, bpb_text(r.bits_per_byte), r.sources.size(), r.tokens,
                                  human_seconds(e.seconds)));
  return lines;
}

std::string to_line(const SavedEvent& e) {
  const auto at = std::find_if(e.best.begin(), e.best.end(), [&](const auto& r) { return r.step == e.step; });
  if (at == e.best.end()) return "";
  std::vector<int64_t> steps;
  for (const checkpoint::RankedStep& r : e.best) steps.push_back(r.step);
  return absl::StrFormat("step %d  checkpoint kept as number %d by val_loss, %.4f (the best first: %s)", e.step,
                         at - e.best.begin() + 1, at->val_loss, comma_list(std::span<const int64_t>(steps)));
}

std::vector<std::string> to_lines(const TasksEvent& e) {
  if (!e.scores)
    return {str_cat("step ", e.step, "  the evaluation on tasks was interrupted; its scores are not written")};
  std::vector<std::string> lines;
  for (const std::string& line : to_lines(*e.scores)) lines.push_back(str_cat("step ", e.step, "  ", line));
  return lines;
}

std::string to_line(const EndEvent& e) {
  if (!e.signal) {
    const std::string steps = str_cat("done: ", e.step, e.step == 1 ? " step" : " steps");
    if (!e.val_loss) return steps;
    return absl::StrFormat("%s  val_loss %.4f  %s", steps, *e.val_loss, bpb_text(e.val_bpb));
  }
  if (e.step >= e.total_steps)
    return str_cat(*e.signal, ": stopped after the last step; run the same command again to validate");
  return str_cat(*e.signal, ": stopped after step ", e.step, " of ", e.total_steps,
                 "; run the same command again to continue");
}

void TerminalSink::start(const StartEvent& e) {
  const config::RunSection& run = e.config.run;
  log_.info(absl::StrFormat("mfu is relative to %.0f GFLOP/s of %s, measured now on %s with %s", e.peak_flops / 1e9,
                            std::string(name_of(run.dtype)), e.ranks == 1 ? "this machine" : "all ranks",
                            run.device == config::Device::kCpu ? "operands in registers" : "matrix products"));
}

void TerminalSink::step(const StepEvent& e) {
  loss_sum_ += e.result.loss;
  ++loss_steps_;
  if (e.step % options_.every != 0 && e.step != e.total_steps && e.step != 1) return;
  StepEvent shown = e;
  shown.result.loss = std::exchange(loss_sum_, 0) / static_cast<double>(std::exchange(loss_steps_, 0));
  log_.step(options_.line == config::StepLine::kFull ? to_line(shown) : to_short_line(shown));
}

void TerminalSink::validation(const ValidationEvent& e) {
  for (const std::string& line : to_lines(e)) log_.info(line);
}

void TerminalSink::sample(const SampleEvent& e) {
  log_.info(str_cat("step ", e.step, "  sample: ", escaped(e.prompt + e.text, std::string::npos)));
}

void TerminalSink::saved(const SavedEvent& e) {
  if (const std::string line = to_line(e); !line.empty()) log_.info(line);
}

void TerminalSink::tasks(const TasksEvent& e) {
  for (const std::string& line : to_lines(e)) log_.info(line);
}

void TerminalSink::warning(const WarningEvent& e) {
  if (is_note(e)) return log_.info(to_line(e));
  log_.warn(to_line(e));
}

void TerminalSink::end(const EndEvent& e) {
  if (const std::string line = to_line(e); !line.empty()) log_.info(line);
  if (e.signal) return;
  if (!e.best.empty()) {
    const checkpoint::RankedStep& best = e.best.front();
    log_.info(absl::StrFormat("best checkpoint: step %d  val_loss %.4f  %s", best.step, best.val_loss,
                              bpb_text(best.val_bpb)));
  }
  log_.info(str_cat("memory: peak of the process ", e.memory));
  if (!e.device_memory.empty()) log_.info(str_cat("memory of the device: ", e.device_memory));
}

}  // namespace ashlar::training
