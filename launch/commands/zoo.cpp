#include "launch/commands/subcommands.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/zoo/comparison.h"
#include "launch/zoo/recipes.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::launch {

const char* const kZooHelp =
    "ashlar zoo                   published models, one per line\n"
    "ashlar zoo uses [KEY]        model options: each key, its values, the models that use them\n"
    "ashlar zoo show MODEL        the configuration of a model as TOML\n"
    "ashlar zoo tiny MODEL        overrides for a small model that trains in seconds, with the same options:\n"
    "                             ashlar train configs/zoo/MODEL.toml $(ashlar zoo tiny MODEL) data.path=DIR\n"
    "ashlar zoo start [NAME]      training configurations (configs/start), one per line; one as TOML\n"
    "ashlar zoo explain CONFIG [section.key=value ...]\n"
    "                             the published models nearest to a configuration; which of its options are common,\n"
    "                             rare or unique; ratios outside the published range\n"
    "\n"
    "Decoder-only models as published (configs/zoo); unpublished values are marked there.\n";

namespace {

std::string human_count(int64_t n) {
  const auto x = static_cast<double>(n);
  if (n >= 1'000'000'000'000) return absl::StrFormat("%.2fT", x / 1e12);
  return n >= 1'000'000'000 ? absl::StrFormat("%.2fB", x / 1e9) : absl::StrFormat("%.0fM", x / 1e6);
}

void list_models(Log& log) {
  log.info(absl::StrFormat("%-18s %9s %9s  %6s %7s %9s %8s %7s %8s  %s", "model", "params", "active", "layers",
                           "d_model", "heads/KV", "head_dim", "d_ff", "context", "name"));
  for (const zoo::Published& p : zoo::published_models()) {
    const model::ModelConfig& m = p.config.model;
    const bool experts = m.moe.experts > 0;
    log.info(absl::StrFormat("%-18s %9s %9s  %6d %7d %9s %8d %7d %8d  %s", p.id, human_count(p.parameters),
                             experts ? human_count(model::active_parameters(m)) : "", m.n_layers, m.d_model,
                             str_cat(m.n_heads, "/", m.n_kv_heads), m.head_dim, experts ? m.moe.d_ff : m.d_ff,
                             p.config.train.sequence_length, p.title));
  }
}

void list_uses(const std::string& key, Log& log) {
  bool found = false;
  for (const zoo::Uses& uses : zoo::usage_by_key(zoo::published_models())) {
    if (!key.empty() && uses.key != key) continue;
    found = true;
    log.info(uses.key);
    for (size_t i = 0; i < uses.values.size(); ++i) {
      const zoo::Use& use = uses.values[i];
      // If more than 12 models use the most frequent value, these models are not listed.
      const bool many = key.empty() && i == 0 && use.ids.size() > 12;
      log.info(absl::StrFormat("  %-28s %3d  %s", use.value, use.ids.size(), many ? "" : absl::StrJoin(use.ids, ", ")));
    }
  }
  if (!found) throw input_error("zoo", "no published model has a key '", key, "'; see ashlar zoo uses");
}

void show_lines(std::string_view text, Log& log) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) log.info(line);
}

void list_recipes(Log& log) {
  log.info(absl::StrFormat("%-15s %8s %8s  %5s x %-5s %8s %6s  %s", "training", "params", "tokens", "batch", "seq.",
                           "rate", "guessed", "name: source"));
  for (const zoo::Recipe& r : zoo::recipes())
    log.info(absl::StrFormat("%-15s %8s %8s  %5d x %-5d %8g %6d  %s: %s", r.id, human_count(r.parameters),
                             human_count(r.tokens), r.config.train.global_batch, r.config.train.sequence_length,
                             r.config.optimizer.lr, r.guessed_keys, r.title, r.source));
}

void explain_config(const Arguments& arguments, std::vector<std::string> files, Log& log) {
  const std::vector<std::string> overrides = take_overrides(files);
  arguments.expect(files, 1, "one configuration file", "; usage: ashlar zoo explain CONFIG");
  const config::RawConfig raw = config::read_config(files[0], overrides);
  config::Facts facts{.dataset_vocab_size = std::nullopt, .purpose = config::Purpose::kModel};
  if (!raw.given("vocab.size")) facts.dataset_vocab_size = 50257;  // any size: the comparison ignores it
  const config::RunConfig config = config::resolve(raw, facts).config;
  const std::vector<zoo::Published> models = zoo::published_models();
  log.info("nearest published models:");
  const std::vector<zoo::Neighbour> near = zoo::neighbours(config, models);
  for (size_t i = 0; i < std::min<size_t>(3, near.size()); ++i) {
    std::vector<std::string> differences;
    for (const config::ModelDifference& d : near[i].differences)
      differences.push_back(str_cat(d.key, " ", d.left, " (there ", d.right, ")"));
    log.info(absl::StrFormat("  %-18s %s: %s", near[i].model->id, near[i].model->title,
                             differences.empty() ? "all options equal" : absl::StrJoin(differences, "; ")));
  }
  using Kind = zoo::Note::Kind;
  const std::vector<zoo::Note> notes = zoo::notes(config, models);
  for (const auto& [kind, head] : {std::pair(Kind::kUnique, "unique:"), std::pair(Kind::kRare, "rare:"),
                                   std::pair(Kind::kCustomary, "customary:")}) {
    const char* title = head;
    for (const zoo::Note& r : notes) {
      if (r.kind != kind) continue;
      if (title != nullptr) log.info(title);
      title = nullptr;
      log.info("  " + r.text);
    }
  }
  for (const zoo::Note& r : notes)
    if (r.kind == Kind::kWarning) log.warn("[zoo] " + r.text);
}

}  // namespace

int run_zoo_command(Words words, Session& session) {
  Log& log = session.log;
  if (words.empty()) {
    list_models(log);
    return 0;
  }
  const std::string& what = words[0];
  Arguments arguments("zoo " + what, words.subspan(1));
  const bool markdown = what == "start" && arguments.flag("--markdown");
  const std::vector<std::string> names = arguments.positionals();
  const bool one = names.size() == 1;
  if (what == "start" && names.empty()) {
    if (markdown) show_lines(zoo::recipes_markdown(), log);
    if (!markdown) list_recipes(log);
  } else if (what == "start" && one && !markdown) {
    show_lines(zoo::recipe_text(names[0]).toml, log);
  } else if (what == "explain") {
    explain_config(arguments, names, log);
  } else if (what == "uses" && names.size() <= 1) {
    list_uses(one ? names[0] : "", log);
  } else if (what == "show" && one) {
    show_lines(zoo::published_text(names[0]).toml, log);
  } else if (what == "tiny" && one) {
    const config::RunConfig whole =
        zoo::config_of(zoo::published_text(names[0]), "configs/zoo", config::Purpose::kModel);
    log.info(absl::StrJoin(zoo::tiny_twin(whole), " "));
  } else {
    throw input_error("zoo", "expected uses, show, tiny, start or explain with their arguments, got '",
                      absl::StrJoin(words, " "), "'; see ashlar zoo --help");
  }
  return 0;
}

}  // namespace ashlar::launch
