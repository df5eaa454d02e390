#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "core/base/log.h"
#include "launch/training/clock.h"
#include "launch/training/held_file.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

/// Writes `events.jsonl`: what happened to a run beside its steps, over all its starts; never rewritten. Each line is a
/// JSON object with `time` (seconds since 1970), `event` and:
///
///   start, resume   step, version, commit, compilers, ranks, device, dtype; plan (an object of `ashlar plan --json`);
///                   resume: changes (texts), of configuration and data
///   save            step, ms; val_loss of a step that was validated; best (steps, the best first), with
///                   checkpoint.keep_best; the last save, which the end implies, has no line
///   sample          step, prompt, text (log.sample)
///   warning, note   text
///   end             step, steps; signal if one ended the run; val_loss, val_bpb of the last validation;
///                   best, as of a save
///   error           step, code (exit code), text. A rank that is killed, or that fails alone, leaves no such line.
class EventsFile final : public MetricSink {
 public:
  /// `check`: HeldFile::Args::check.
  EventsFile(const std::filesystem::path& path, Log& log, std::function<void()> check = {},
             std::function<double()> clock = unix_sec);

  void start(const StartEvent& event) override;
  void save(const SaveEvent& event) override;
  void saved(const SavedEvent& event) override;
  void sample(const SampleEvent& event) override;
  void warning(const WarningEvent& event) override;
  void end(const EndEvent& event) override;
  void error(const ErrorEvent& event) override;

 private:
  void append(std::string_view event, const nlohmann::ordered_json& fields);

  std::function<double()> clock_;
  HeldFile file_;
};

}  // namespace ashlar::training
