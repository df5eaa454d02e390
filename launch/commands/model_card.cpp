#include "launch/commands/model_card.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/json.h"
#include "launch/config/run_config.h"
#include "launch/version/version.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::launch {

namespace {

namespace fs = std::filesystem;

/// The last values of a run's metrics.jsonl up to a step.
struct Losses {
  std::optional<double> train, validation;
  int64_t train_step = 0, validation_step = 0;
  nlohmann::ordered_json tasks;
};

Losses losses_until(const fs::path& metrics, int64_t step) {
  Losses found;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = io::try_parse_json(line).value_or(nlohmann::json());
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer() || row["step"] > step) continue;
    if (row.contains("loss") && row["loss"].is_number()) {
      found.train = row["loss"].get<double>();
      found.train_step = row["step"];
    }
    if (row.contains("val_loss") && row["val_loss"].is_number()) {
      found.validation = row["val_loss"].get<double>();
      found.validation_step = row["step"];
    }
    if (row.contains("tasks") && row["tasks"].is_object()) found.tasks = row["tasks"];
  }
  return found;
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
  // DIR/checkpoints/step-N
  const Losses losses = losses_until(opened.checkpoint.parent_path().parent_path() / "metrics.jsonl", opened.step);
  if (losses.train) table += absl::StrFormat("| training loss | %.4f at step %d |\n", *losses.train, losses.train_step);
  if (losses.validation)
    table += absl::StrFormat("| validation loss | %.4f at step %d |\n", *losses.validation, losses.validation_step);
  for (const auto& [task, values] : losses.tasks.items())
    if (values.contains("acc") && values["acc"].is_number())
      table += absl::StrFormat("| %s | acc %.4f on %d records |\n", escaped(task), values["acc"].get<double>(),
                               values.value("records", int64_t{0}));
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
