#include "launch/commands/model_card.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/config/run_config.h"
#include "launch/runs/run_folder.h"
#include "launch/version/version.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::launch {

namespace {

namespace fs = std::filesystem;

/// The last point of a metric up to a step; null without one.
const runs::Point* last_until(const runs::RunFolder& run, const std::string& key, int64_t step) {
  const runs::Series& series = run.series(key);
  const auto after = std::ranges::upper_bound(series, step, {}, &runs::Point::step);
  return after == series.begin() ? nullptr : &*std::prev(after);
}

/// Rows of a table: the last losses and accuracies of the run up to a step.
std::string result_rows(const runs::RunFolder& run, int64_t step) {
  std::string rows;
  for (const auto& [key, what] : {std::pair("loss", "training loss"), std::pair("val_loss", "validation loss")})
    if (const runs::Point* const at = last_until(run, key, step))
      rows += absl::StrFormat("| %s | %.4f at step %d |\n", what, at->value, at->step);
  constexpr std::string_view kTasks = "tasks/", kAccuracy = "/acc";
  for (const auto& [key, series] : run.metrics) {
    if (!key.starts_with(kTasks) || !key.ends_with(kAccuracy)) continue;
    const std::string task = key.substr(kTasks.size(), key.size() - kTasks.size() - kAccuracy.size());
    const runs::Point* const acc = last_until(run, key, step);
    const runs::Point* const records = last_until(run, str_cat(kTasks, task, "/records"), step);
    if (acc != nullptr)
      rows += absl::StrFormat("| %s | acc %.4f on %.0f records |\n", escaped(task), acc->value,
                              records != nullptr ? records->value : 0.0);
  }
  return rows;
}

/// Returns the configuration without the sections that hold paths and logging.
std::string shown_config(const std::string& toml) {
  std::string text;
  bool shown = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(toml, '\n'))) {
    if (line.starts_with("["))
      shown = !line.starts_with("[run]") && !line.starts_with("[data]") && !line.starts_with("[checkpoint]") &&
              !line.starts_with("[log]");
    if (shown && !line.empty()) text += line + "\n";
  }
  return text;
}

std::string training_table(const hf::OpenedExport& opened, const config::RunConfig& run) {
  std::string data;
  for (const config::DataSource& source : run.data.sources) {
    const fs::path path = fs::path(source.path).lexically_normal();
    const fs::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
    data += str_cat(data.empty() ? "" : ", ", escaped(name.string()),
                    run.data.sources.size() > 1 ? str_cat(" (weight ", source.weight, ")") : "");
  }
  std::string table = str_cat("| | |\n|---|---|\n| dataset | ", data, " |\n| steps | ", opened.step, " of ",
                              run.train.steps, " |\n| tokens | ", opened.tokens, ", in sequences of ",
                              run.train.sequence_length, " |\n| dtype of training | ", name_of(run.run.dtype), " |\n");
  const fs::path directory = opened.checkpoint.parent_path().parent_path();  // of DIR/checkpoints/step-N
  if (runs::is_run(directory)) table += result_rows(runs::read_run(directory), opened.step);
  return table;
}

}  // namespace

std::string model_card(const hf::OpenedExport& opened) {
  const config::RunConfig run = config::stored_config(opened.config_toml, opened.checkpoint.string());
  const int64_t parameters = model::count_parameters(run.model).total();
  const std::string what = str_cat("A ", opened.config.family->class_name, " with ", parameters,
                                   " parameters, exported by Ashlar ", version(), " (commit ", commit(), ").");
  if (opened.step < 0)
    return str_cat("# Converted model\n\n", what,
                   "\n\nThe weights were imported and not trained by this program; their authors' card and licence "
                   "apply.\n");
  return str_cat("# ", escaped(fs::path(run.run.dir).lexically_normal().filename().string()), "\n\n", what, "\n\n",
                 training_table(opened, run),
                 "\nLosses are mean cross-entropies in nats per token. Nothing else was measured: the model is not "
                 "aligned, and may\nrepeat or invent what its data suggests. The licence of the weights is for their "
                 "owner to state.\n\n## Configuration\n\n```toml\n",
                 shown_config(opened.config_toml), "```\n");
}

}  // namespace ashlar::launch
