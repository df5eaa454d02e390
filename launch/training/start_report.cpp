#include "launch/training/start_report.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/training/parameter_table.h"
#include "launch/training/terminal_sink.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::training {

DataFacts facts_of(std::span<const data::WeightedDataset> datasets) {
  DataFacts facts{.datasets = std::ssize(datasets)};
  for (const data::WeightedDataset& d : datasets) {
    facts.train_tokens += d.dataset->tokens(data::Part::kTrain);
    facts.validation_tokens += d.dataset->tokens(data::Part::kValidation);
  }
  return facts;
}

std::vector<std::string> start_lines(const config::RunConfig& c, const DataFacts& data) {
  const model::ModelConfig& m = c.model;
  const int64_t parameters = model::count_parameters(m).total(), active = model::active_parameters(m);
  std::string model = str_cat("model: ", human_count(static_cast<double>(parameters)), " parameters");
  if (active != parameters) model += str_cat(", ", human_count(static_cast<double>(active)), " used by a token");
  model += str_cat(", ", m.n_layers, " layers of width ", m.d_model, ", vocabulary ", m.vocab_size);
  const int64_t step_tokens = c.train.global_batch * c.train.sequence_length;
  const double epochs = static_cast<double>(step_tokens) * static_cast<double>(c.train.steps) /
                        static_cast<double>(std::max<int64_t>(1, data.train_tokens));
  std::vector<std::string> lines = {std::move(model)};
  lines.push_back(str_cat("data: ", data.datasets == 1 ? "" : str_cat(data.datasets, " datasets, "),
                          human_count(static_cast<double>(data.train_tokens)), " training tokens, ",
                          human_count(static_cast<double>(data.validation_tokens)), " for validation; a step reads ",
                          human_count(static_cast<double>(step_tokens)), ", ", c.train.steps, " steps ",
                          human_count(static_cast<double>(step_tokens) * static_cast<double>(c.train.steps)), " (",
                          absl::StrFormat("%.3g", epochs), epochs == 1 ? " epoch)" : " epochs)"));
  lines.push_back(str_cat("run: ", printable(c.run.dir), " (start.txt has derived values, parameters and the plan)"));
  return lines;
}

std::string start_text(const config::Resolved& resolved, const optim::OptimizerOptions& options) {
  std::string text;
  for (const config::DerivedValue& d : resolved.derived)
    text += str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")\n");
  return text + parameter_table(resolved.config.model, options) + "\n";
}

void log_start(Run& run, const DataFacts& data, const std::string& text, bool new_run) {
  if (!run.first_rank) return;
  if (run.config.log.verbose && new_run) {
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) run.log.info(line);
  }
  for (const std::string& line : start_lines(run.config, data)) run.log.info(line);
  run.log.info(str_cat("memory: before the first step ", run.memory.report(run.device->backend())));
}

}  // namespace ashlar::training
