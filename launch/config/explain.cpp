#include "launch/config/explain.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/base/nearest.h"
#include "core/base/strings.h"
#include "launch/config/schema.h"

namespace ashlar::config {
namespace {

/// Returns a text that lists the known but unsupported words of a key; "" if there are none, or if they are words of
/// earlier versions (KeySpec::instead is not empty).
std::string refusal(const KeySpec& s) {
  if (*s.unsupported != 0 && *s.instead == 0)
    return str_cat("not supported by this version: ", comma_list(split_words(s.unsupported)));
  return "";
}

std::string explain_spec(const KeySpec& s) {
  std::string text = str_cat(s.name(), ": ", expectation(s), *s.unit != 0 ? str_cat(" (", s.unit, ")") : "", "\n  ",
                             std::string_view(s.doc), "\n  default: ", default_text(s), "\n");
  if (*s.when.text != 0) text += str_cat("  only when: ", s.when.text, "\n");
  if (const std::string refused = refusal(s); !refused.empty()) text += str_cat("  ", refused, "\n");
  const char* const resume = s.fixed ? "fixed" : s.kept ? "keeps the value of the run unless given" : "may change";
  return text + str_cat("  on resume: ", resume, "\n");
}

std::string explain_section(const SectionDoc& section) {
  std::string text = str_cat("[", section.section, "] ", section.doc, "\n");
  for (const KeySpec& spec : schema())
    if (std::string_view(spec.section) == section.section) text += "\n" + explain_spec(spec);
  return text;
}

/// Returns the few keys whose text has `word`, such as a published model: "; the text of moe.score has that word".
std::string keys_that_name(std::string_view word) {
  constexpr size_t kFewest = 4, kMost = 8;
  std::vector<std::string> keys;
  for (const KeySpec& spec : schema())
    if (absl::AsciiStrToLower(spec.doc).find(absl::AsciiStrToLower(std::string(word))) != std::string::npos)
      keys.push_back(spec.name());
  if (word.size() < kFewest || keys.empty() || keys.size() > kMost) return "";
  return str_cat("; the text of ", comma_list(keys), keys.size() == 1 ? " has" : " have", " that word");
}

std::string cell(std::string text) {
  for (size_t i = 0; (i = text.find('|', i)) != text.npos; i += 2) text.replace(i, 1, "\\|");
  return text;
}

}  // namespace

std::string explain(std::string_view what) {
  std::string text;
  for (const SectionDoc& section : sections())
    if (what == "all" || what == section.section) text += str_cat(text.empty() ? "" : "\n", explain_section(section));
  if (!text.empty()) return text;
  const size_t dot = what.find('.');
  const std::string_view section = dot == what.npos ? "" : what.substr(0, dot);
  const std::string_view key = dot == what.npos ? what : what.substr(dot + 1);
  if (const KeySpec* spec = find_key(section, key)) return explain_spec(*spec);
  // A word without a dot may be a section or a key. A word before a dot is a section.
  const std::string near_section = nearest_section(section.empty() ? what : section);
  const std::string near_key = nearest_key(section, key);
  std::string guess = near_key.empty() ? section_guess(section) : str_cat("did you mean ", near_key, "?");
  if (section.empty()) {
    const std::string_view name = std::string_view(near_key).substr(near_key.find('.') + 1);
    const size_t far = name.starts_with(what) && what.size() >= 4 ? 1 : edit_distance(name, what);
    const bool section_is_nearer = !near_section.empty() && edit_distance(near_section, what) <= far;
    if (section_is_nearer || !is_slip(far, name, what)) guess = section_guess(what);
  }
  throw input_error("explain", "expected a key, a section or `all`, got `", what, "`; ", guess, keys_that_name(what));
}

std::string schema_markdown() {
  std::string text =
      "# Configurations\n\n"
      "A run is described by a TOML file; any key is overridden on the command line as `section.key=value`, and "
      "`section.key=default` unsets a key of the file.\n"
      "All errors of a configuration are reported at once, before anything is allocated. Derived values "
      "are printed with their rule, and the run directory holds the resolved file.\n\n"
      "| file | what it trains |\n|---|---|\n"
      "| `quickstart.toml` | a small bf16 model on byte-level BPE, minutes on two cores |\n"
      "| `shakespeare-char.toml` | nanoGPT's CPU example: characters, 4 layers, width 128 |\n"
      "| `gpt2-124m.toml` | GPT-2 small, as published |\n"
      "| `start/` | complete training configurations of published models, GPT-2 124M to Pythia 12B, with a table: "
      "`ashlar zoo start` |\n"
      "| `zoo/` | published models with their values and sources: `ashlar zoo` |\n"
      "| `devices/` | GPUs for `plan --device`: rates and links, with their sources (`launch/plan`) |\n\n"
      "To add one: put it here and `./check --only config` loads it. The tables below are made from the schema "
      "(`launch/config/schema_table.cpp`, `schema_model_table.cpp`) by\n"
      "`ashlar explain --markdown > configs/README.md`; `ashlar explain KEY` shows one key, a section or `all`.\n\n"
      "Required: ";
  std::string required;
  for (const KeySpec& spec : schema())
    if (spec.need == Need::kModel || spec.need == Need::kTrain)
      required += str_cat(required.empty() ? "`" : ", `", spec.name(), "`");
  text += required + ". A key marked * may not change when a run is resumed.\n";
  for (const SectionDoc& section : sections()) {
    text += str_cat("\n## [", section.section, "] ", section.doc,
                    "\n\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for (const KeySpec& s : schema()) {
      if (std::string_view(s.section) != section.section) continue;
      std::string meaning = s.doc;
      if (*s.when.text != 0) meaning += str_cat(" Only when ", s.when.text, ".");
      if (s.kept) meaning += " When it is not given, a resumed run keeps its value.";
      if (std::string refused = refusal(s); !refused.empty()) {
        refused[0] = 'N';
        meaning += str_cat(" ", refused, ".");
      }
      text += str_cat("| `", s.key, "`", s.fixed ? "*" : "", " | ", cell(expectation(s)),
                      *s.unit != 0 ? str_cat(" (", s.unit, ")") : "", " | ", cell(default_text(s)), " | ",
                      cell(meaning), " |\n");
    }
  }
  return text;
}

}  // namespace ashlar::config
