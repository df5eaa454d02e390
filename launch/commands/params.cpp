#include "launch/commands/params.h"

#include "absl/strings/str_format.h"
#include "data/token_dataset.h"
#include "kernels/cpu/cpu_info.h"
#include "launch/commands/arguments.h"
#include "launch/config/run_config.h"
#include "launch/training/run_identity.h"

namespace ashlar::launch {

const char* const kParamsHelp =
    "ashlar params CONFIG [section.key=value ...]\n"
    "\n"
    "Parameters of a configuration by component, flops a token, and every derived value with its rule. Nothing is\n"
    "allocated. vocab.size comes from the configuration or from the dataset of data.path; with neither, what depends "
    "on\n"
    "it is counted for one token id.\n";

namespace {

/// Counts of a model whose vocabulary nothing tells: what every id adds apart from what is there without any.
int print_without_vocabulary(model::ModelConfig m, const std::string& reason, Log& log) {
  m.vocab_pad_to = 1;
  m.vocab_size = 1;
  const model::ParameterCount one = model::count_parameters(m);
  const auto line = [&](const char* name, int64_t n) { log.info(absl::StrFormat("%-12s %16d", name, n)); };
  const auto line_per_id = [&](const char* name, int64_t n) {
    if (n > 0) log.info(absl::StrFormat("%-12s %16d x vocab.size", name, n));
  };
  line_per_id("embedding", one.embedding);
  line("positions", one.positions);
  line("attention", one.attention);
  line("ffn", one.ffn);
  line("norms", one.norms);
  line("biases", one.biases);
  line_per_id("head", one.head);
  line_per_id("head_bias", one.head_bias);
  const int64_t per_id = one.embedding + one.head + one.head_bias;
  log.info(absl::StrFormat("%-12s %16d + %d x vocab.size", "total", one.total() - per_id, per_id));
  log.info(str_cat("vocab.size is not known: it is not given, and ", reason,
                   ". Give it for the whole count, e.g. vocab.size=257, which the bytes tokenizer has"));
  return 0;
}

}  // namespace

int run_params_command(std::span<const std::string> words, Log& log) {
  Arguments arguments("params", words);
  std::vector<std::string> files = arguments.positionals();
  const std::vector<std::string> overrides = take_overrides(files);
  if (files.size() != 1)
    throw input_error("params", "expected one configuration file, got ", files.size(),
                      "; usage: ashlar params CONFIG [section.key=value ...]");
  config::RawConfig raw = config::read_config(files[0], overrides);
  const std::vector<config::DerivedValue> taken = training::take_start(raw);
  config::Facts facts{.hardware_threads = cpu::detect_cpu().cores, .purpose = config::Purpose::kModel};
  std::string reason = "data.path is not given";
  for (const auto& source : raw.data_sources()) {
    try {
      if (!facts.dataset_vocab_size)
        facts.dataset_vocab_size = data::TokenDataset(source.path).tokenizer().vocab_size();
    } catch (const Error& error) {
      reason = error.what();  // counting needs no dataset
      if (const size_t where = reason.find("] "); where != std::string::npos) reason.erase(0, where + 2);
    }
  }
  const bool unknown_vocabulary = !facts.dataset_vocab_size && !raw.given("vocab.size");
  if (unknown_vocabulary) facts.dataset_vocab_size = 1;
  config::Resolved resolved = config::resolve(raw, facts);
  resolved.derived.insert(resolved.derived.end(), taken.begin(), taken.end());
  const model::ModelConfig& m = resolved.config.model;
  for (const auto& d : resolved.derived) {
    if (unknown_vocabulary && d.key == "vocab.size") continue;
    log.info(str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")"));
  }
  if (unknown_vocabulary) return print_without_vocabulary(m, reason, log);

  const model::ParameterCount count = model::count_parameters(m);
  const auto line = [&](const char* name, int64_t n) {
    log.info(absl::StrFormat("%-12s %16d  %5.1f%%", name, n, 100.0 * n / count.total()));
  };
  line("embedding", count.embedding);
  line("positions", count.positions);
  line("attention", count.attention);
  line("ffn", count.ffn);
  line("norms", count.norms);
  line("biases", count.biases);
  line("head", count.head);
  line("head_bias", count.head_bias);
  line("total", count.total());
  if (m.vocab_padded() != m.vocab_size) {
    log.info(absl::StrFormat("the vocabulary of %d is padded to %d rows; the padding is masked and counted above",
                             m.vocab_size, m.vocab_padded()));
  }
  const int64_t T = resolved.config.train.sequence_length;
  log.info(absl::StrFormat("in matrix products: %d (6 N = %.4g flops a token)", model::matmul_parameters(m),
                           6.0 * static_cast<double>(model::matmul_parameters(m))));
  if (T > 0) {
    const model::FlopsPerToken f = model::flops_per_token(m, T);
    log.info(absl::StrFormat("attention at T = %d: %.4g flops a token counted in full, %.4g causal", T,
                             f.attention_full, f.attention_causal));
  }
  return 0;
}

}  // namespace ashlar::launch
