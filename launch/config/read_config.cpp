#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error_text.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/config/raw_values.h"
#include "launch/config/toml_text.h"
#include "toml++/toml.h"

namespace ashlar::config {
namespace {

constexpr size_t kMostSyntaxErrors = 40;    // parsing stops after this many values that are not TOML
constexpr size_t kMostShown = 60;           // characters of a wrong value shown in its error
constexpr int64_t kMostUnknown = 10;        // unknown keys and sections named in errors; the rest are counted
constexpr size_t kMostBadSources = 10;      // errors for one data.path; later sources are not checked
constexpr uintmax_t kMostBytes = 16 << 20;  // largest file accepted; configurations are far smaller

template <typename T>
std::string shown(const T& node) {
  std::ostringstream os;
  os << node;
  return escaped(os.str(), kMostShown);
}

std::string shown(const toml::node& node) {
  std::string text;
  node.visit([&](const auto& concrete) { text = shown<std::decay_t<decltype(concrete)>>(concrete); });
  return text;
}

/// Reads data.path given as a list. If an item is wrong, adds errors and returns nothing.
std::optional<Value> read_sources(const toml::array& array, const KeySpec& spec, std::string_view place,
                                  std::vector<std::string>& errors) {
  const size_t before = errors.size();
  std::vector<DataSource> sources;
  if (array.empty()) errors.push_back(value_error(spec, "[]", place));
  for (size_t i = 0; i < array.size(); ++i) {
    if (errors.size() >= before + kMostBadSources) {
      errors.push_back(
          str_cat(spec.name(), ": the ", array.size() - i, " later sources were not checked (", place, ")"));
      break;
    }
    const std::string item = str_cat(spec.name(), "[", i, "]");
    const auto fail = [&](std::string_view what, std::string_view got, std::string_view expected) {
      errors.push_back(str_cat(item, what, " = ", got, ": expected ", expected, "; e.g. ", spec.name(),
                               " = [{path = \"data/text\", weight = 1.0}] (", place, ")"));
    };
    const toml::table* table = array[i].as_table();
    if (table == nullptr) {
      fail("", shown(array[i]), "{path = \"...\", weight = 1.0}");
      continue;
    }
    DataSource source;
    bool has_path = false;
    for (const auto& [key, node] : *table) {
      if (key.str() == "path") {
        has_path = true;
        if (const auto path = node.value_exact<std::string>(); path && !path->empty())
          source.path = *path;
        else
          fail(".path", shown(node), "a non-empty string");
      } else if (key.str() == "weight") {
        const auto weight = node.is_number() ? node.value<double>() : std::nullopt;
        if (weight && *weight > 0 && *weight <= 1e9)
          source.weight = *weight;
        else
          fail(".weight", shown(node), "a number above 0, at most 1000000000");
      } else {
        fail(str_cat(".", escaped(key.str())), shown(node), "only the keys path and weight");
      }
    }
    if (!has_path) fail("", shown(array[i]), "a key `path`");
    sources.push_back(std::move(source));
  }
  if (errors.size() != before) return std::nullopt;
  return sources;
}

/// Returns the node's value if it has type T. An integer is accepted as a double.
template <typename T>
std::optional<T> scalar(const toml::node& node) {
  if constexpr (std::is_same_v<T, double>) {
    return node.is_number() ? node.value<double>() : std::nullopt;
  } else {
    return node.value_exact<T>();
  }
}

/// Returns the node's values if it is a list of items of type T.
template <typename T>
std::optional<std::vector<T>> list_of(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<T> list;
  for (const auto& item : *array)
    if (const std::optional<T> value = scalar<T>(item)) list.push_back(*value);
  return list.size() == array->size() ? std::optional(list) : std::nullopt;
}

std::optional<Value> read_typed(const toml::node& node, const KeySpec& spec, std::string_view place,
                                std::vector<std::string>& errors) {
  std::optional<Value> value;
  switch (spec.type) {
    case KeyType::kInt: value = scalar<int64_t>(node); break;
    case KeyType::kNumber: value = scalar<double>(node); break;
    case KeyType::kNumberOrWord:
      value = scalar<double>(node);
      if (!value) value = scalar<std::string>(node);
      break;
    case KeyType::kBool: value = scalar<bool>(node); break;
    case KeyType::kString:
    case KeyType::kWord: value = scalar<std::string>(node); break;
    case KeyType::kIntList: value = list_of<int64_t>(node); break;
    case KeyType::kNumberList: value = list_of<double>(node); break;
    case KeyType::kKeyList:
    case KeyType::kNameList:
      if (const auto key = scalar<std::string>(node)) return std::vector<std::string>{*key};
      value = list_of<std::string>(node);
      break;
    case KeyType::kSources:
      if (const auto v = node.value_exact<std::string>(); v && !v->empty()) return std::vector<DataSource>{{*v, 1.0}};
      if (const toml::array* array = node.as_array()) return read_sources(*array, spec, place, errors);
      break;
  }
  if (!value) errors.push_back(value_error(spec, shown(node), place));
  return value;
}

void set_value(RawValues& raw, const KeySpec& spec, const toml::node& node, std::string_view place) {
  const size_t index = index_of(spec);
  raw.given[index].reset();
  raw.bad[index] = 1;
  std::optional<Value> value = read_typed(node, spec, place, raw.errors);
  if (!value) return;
  if (std::optional<std::string> error = check_value(spec, *value, place)) {
    raw.errors.push_back(std::move(*error));
    return;
  }
  raw.given[index] = std::move(value);
  raw.bad[index] = 0;
}

bool known_section(std::string_view name) {
  for (const SectionDoc& s : sections())
    if (s.section == name) return true;
  return false;
}

void unknown_key(RawValues& raw, std::string_view section, std::string_view key, std::string_view place) {
  if (++raw.unknown > kMostUnknown) return;
  const std::string name = section.empty() ? escaped(key) : str_cat(escaped(section), ".", escaped(key));
  const std::string nearest = nearest_key(section, key);
  const std::string what = !nearest.empty() ? str_cat("unknown key; did you mean ", nearest, "?")
                           : known_section(section)
                               ? str_cat("unknown key; ashlar explain ", section, " lists the keys of that section")
                               : str_cat("unknown section; expected one of ", section_list());
  raw.errors.push_back(str_cat(name, ": ", what, " (", place, ")"));
}

/// Returns the name of the key (`section.key`) in a line that cannot be parsed; "" if the text before `=` cannot be the
/// name of a key.
std::string subject_of_line(const std::vector<std::string>& lines, size_t line) {
  std::string section;
  for (size_t i = 0; i < line; ++i) {
    const std::string text = trimmed(lines[i]);
    if (text.size() > 2 && text.front() == '[' && text[1] != '[')
      section = trimmed(text.substr(1, text.find(']') == std::string::npos ? text.npos : text.find(']') - 1));
  }
  const std::string text = trimmed(lines[line]);
  const std::string key = trimmed(text.substr(0, text.find('=')));
  if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != key.npos) return "";
  return section.empty() ? key : str_cat(section, ".", key);
}

/// A line that is not TOML.
struct SyntaxError {
  size_t line = 0;                ///< counted from 0
  const KeySpec* spec = nullptr;  ///< key whose value is wrong; null: the error is not in a value, parsing stops
  std::string text;
};

SyntaxError syntax_error_of(const toml::parse_error& e, const std::vector<std::string>& lines,
                            const std::string& file) {
  const std::string description = escaped(e.description());
  SyntaxError error{.line = e.source().begin.line == 0 ? 0 : e.source().begin.line - 1};
  error.line = std::min(error.line, lines.empty() ? size_t{0} : lines.size() - 1);
  while (error.line > 0 && trimmed(lines[error.line]).empty())
    --error.line;  // for a key without a value, the parser reports a later line
  if (lines.empty() || trimmed(lines[error.line]).empty()) {
    error.text = str_cat(escaped(file), ": not a TOML file: ", description);
    return error;
  }
  const std::string& line = lines[error.line];
  const std::string subject = subject_of_line(lines, error.line);
  const std::string place = str_cat(escaped(file), ":", error.line + 1);
  if (const size_t dot = subject.find('.'); dot != subject.npos)
    error.spec = find_key(subject.substr(0, dot), subject.substr(dot + 1));
  std::string got = trimmed(line);
  if (const size_t equals = got.find('='); equals != got.npos) got = trimmed(got.substr(equals + 1));
  got = got.empty() ? "(empty)" : escaped(got);
  error.text = error.spec != nullptr
                   ? str_cat(value_error(*error.spec, got, place), "; not TOML: ", description)
                   : str_cat(escaped(subject.empty() ? trimmed(line) : subject), ": expected TOML, got `",
                             escaped(trimmed(line)), "`; ", description, " (", place, ")");
  return error;
}

/// Parses the text. If a value is not TOML, records the error, removes the line and parses the rest again, so that all
/// errors of this kind are reported at once; errors of overridden keys are dropped. Parsing stops at an error that is
/// not in a value, after kMostSyntaxErrors wrong values, or if the nesting is too deep. Then only one error is
/// reported.
toml::table parse_toml(RawValues& raw, const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  std::vector<SyntaxError> found;
  while (found.size() < kMostSyntaxErrors) {
    std::string joined;
    for (const std::string& line : lines) joined += line + "\n";
    if (const std::optional<size_t> line = too_deep(joined)) {
      found = {{.text = str_cat(escaped(raw.name), ":", *line + 1, ": expected at most ", io::kMaxJsonDepth,
                                " levels of nested lists and tables, got more; valid configurations have three")}};
      break;
    }
    try {
      toml::table table = toml::parse(joined, raw.name);
      for (SyntaxError& error : found) {
        if (raw.overridden[index_of(*error.spec)] != 0) continue;
        raw.bad[index_of(*error.spec)] = 1;
        raw.errors.push_back(std::move(error.text));
      }
      return table;
    } catch (const toml::parse_error& e) {
      found.push_back(syntax_error_of(e, lines, raw.name));
      if (found.back().spec == nullptr) break;
      lines[found.back().line].clear();
    }
  }
  raw.is_toml = false;
  raw.errors.push_back(std::move(found.front().text));
  return {};
}

void read_table(RawValues& raw, const toml::table& root) {
  const auto place_of = [&](const toml::node& node) {
    return str_cat(escaped(raw.name), ":", node.source().begin.line);
  };
  for (const auto& [section_key, section_node] : root) {
    const std::string section(section_key.str());
    const toml::table* table = section_node.as_table();
    if (table == nullptr) {
      if (known_section(section))
        raw.errors.push_back(str_cat(section, " = ", shown(section_node), ": expected a section; write [", section,
                                     "] on its own line (", place_of(section_node), ")"));
      else
        unknown_key(raw, "", section, place_of(section_node));
      continue;
    }
    for (const auto& [key, node] : *table) {
      const KeySpec* spec = find_key(section, key.str());
      if (spec != nullptr && raw.overridden[index_of(*spec)] != 0) continue;
      // Configurations stored by earlier versions contain run.deterministic = true. The key no longer exists, because
      // every run is deterministic.
      if (section == "run" && key == "deterministic" && node.value<bool>() == true) continue;
      if (spec != nullptr)
        set_value(raw, *spec, node, place_of(node));
      else
        unknown_key(raw, section, key.str(), place_of(node));
    }
    if (table->empty() && !known_section(section) && ++raw.unknown <= kMostUnknown)
      raw.errors.push_back(str_cat("[", escaped(section), "]: unknown section; ", section_guess(section), " (",
                                   place_of(section_node), ")"));
  }
  if (raw.unknown > kMostUnknown)
    raw.errors.push_back(str_cat(escaped(raw.name), ": ", raw.unknown - kMostUnknown,
                                 " more keys and sections are unknown; is this a run configuration?"));
}

/// An argument `section.key=value` of the command line.
struct Override {
  std::string section, key, text;
  const KeySpec* spec = nullptr;  ///< null: no such key, or the argument is not an override
};

Override parse_override(const std::string& argument) {
  const size_t equals = argument.find('=');
  const std::string name = trimmed(std::string_view(argument).substr(0, equals));
  if (equals == argument.npos || name.empty()) return {};
  const size_t dot = name.find('.');
  Override o{.section = dot == name.npos ? "" : name.substr(0, dot),
             .key = dot == name.npos ? name : name.substr(dot + 1),
             .text = trimmed(std::string_view(argument).substr(equals + 1))};
  o.spec = find_key(o.section, o.key);
  return o;
}

constexpr std::string_view kCommandLine = "command line";

void read_override(RawValues& raw, const Override& given) {
  const KeySpec& spec = *given.spec;
  const std::string& text = given.text;
  if (text == "default") return;
  if (text.empty() || text.find_first_of("\r\n") != text.npos) {
    raw.bad[index_of(spec)] = 1;
    raw.errors.push_back(
        text.empty() ? value_error(spec, "(empty)", kCommandLine)
                     : str_cat(spec.name(), ": expected a value on one line, got several lines (", kCommandLine, ")"));
    return;
  }
  // Words and paths need no quotes on a command line: a text that is not TOML is read as a string.
  const bool texts = spec.type == KeyType::kString || spec.type == KeyType::kKeyList ||
                     spec.type == KeyType::kNameList || spec.type == KeyType::kWord || spec.type == KeyType::kSources;
  const std::string line = str_cat("value = ", text);
  if ((!texts || text.front() == '"' || text.front() == '\'' || text.front() == '[') && !too_deep(line)) {
    try {
      const toml::table parsed = toml::parse(line);
      if (parsed.size() == 1 && parsed.contains("value"))
        return set_value(raw, spec, *parsed.get("value"), kCommandLine);
    } catch (const toml::parse_error&) {
    }
  }
  set_value(raw, spec, toml::value<std::string>(text), kCommandLine);
}

/// Marks the keys that overrides replace, so that their values in the file are not checked. The older or newer form of
/// such a key (KeySpec::older_form_of) is marked too.
void mark_overridden(RawValues& raw, std::span<const Override> overrides) {
  for (const Override& o : overrides) {
    if (o.spec == nullptr) continue;
    raw.overridden[index_of(*o.spec)] = 1;
    for (const KeySpec& other : schema())
      if (other.older_form_of == o.spec->name() || o.spec->older_form_of == other.name())
        raw.overridden[index_of(other)] = 1;
  }
}

/// True if a later override sets the same key; the last override counts.
bool is_replaced(std::span<const Override> overrides, size_t at) {
  const auto later = overrides.subspan(at + 1);
  return std::ranges::any_of(later, [&](const Override& o) { return o.spec == overrides[at].spec; });
}

}  // namespace

RawConfig parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  RawConfig config(name);
  RawValues& raw = config.values();
  std::vector<Override> given;
  for (const std::string& argument : overrides) given.push_back(parse_override(argument));
  mark_overridden(raw, given);
  read_table(raw, parse_toml(raw, text));
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].key.empty())
      raw.errors.push_back(
          str_cat(escaped(overrides[i]), ": expected section.key=value; e.g. train.steps=1000 (", kCommandLine, ")"));
    else if (given[i].spec == nullptr)
      unknown_key(raw, given[i].section, given[i].key, kCommandLine);
    else if (!is_replaced(given, i))
      read_override(raw, given[i]);
  }
  return config;
}

RawConfig read_config(const std::string& path, const std::vector<std::string>& overrides) {
  io::require_regular_file(path, "config");
  std::error_code none;
  if (const uintmax_t bytes = std::filesystem::file_size(path, none); !none && bytes > kMostBytes)
    throw input_error("config", escaped(path), ": expected a TOML file of at most ", kMostBytes, " bytes, got ", bytes,
                      "; give the path of a configuration such as configs/quickstart.toml");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || std::filesystem::is_directory(path))
    throw input_error("config", escaped(path), ": expected a readable TOML file, got ",
                      in ? "a directory" : std::strerror(errno),
                      "; give the path of a configuration such as configs/quickstart.toml");
  return parse_config(text.str(), path, overrides);
}

RawConfig::RawConfig(const std::string& name)
    : values_(new RawValues(name), [](RawValues* values) { delete values; }) {}

std::vector<DataSource> RawConfig::data_sources() const {
  return values_->get<std::vector<DataSource>>("data.path").value_or(std::vector<DataSource>{});
}

void RawConfig::add_error(std::string_view text) { values_->errors.push_back(str_cat("data.path: ", text_of(text))); }

std::string RawConfig::run_dir() const { return values_->run_dir(); }

std::optional<std::string> RawConfig::init_from() const { return values_->get<std::string>("run.init_from"); }

bool RawConfig::allow_change() const { return values_->get<bool>("data.allow_change").value_or(false); }

bool RawConfig::given(std::string_view key) const { return values_->given[key_index(key)].has_value(); }

bool RawConfig::overridden(std::string_view key) const { return values_->overridden[key_index(key)] != 0; }

void RawConfig::found_in_run(const std::string& dir, int64_t ranks) {
  const auto integer = [&](std::string_view key, int64_t absent) {
    return values_->get<int64_t>(key).value_or(absent);
  };
  if (!overridden("run.dir")) values_->given[key_index("run.dir")] = dir;
  if (overridden("mesh.data")) return;
  values_->given[key_index("mesh.data")].reset();
  const int64_t replicas = ranks / (integer("mesh.tensor", 1) * integer("mesh.pipeline", 1));
  if (given("mesh.expert") && !overridden("mesh.expert") && replicas > 0) {
    int64_t expert = std::min(integer("mesh.expert", 1), replicas);
    while (replicas % expert != 0) --expert;
    values_->given[key_index("mesh.expert")] = expert;
  }
  if (overridden("train.micro_batch")) return;
  const int64_t global = integer("train.global_batch", 0);
  if (replicas == 0 || global == 0 || global % replicas != 0) return;  // resolve() reports this error
  int64_t micro_batch = std::min(integer("train.micro_batch", 1), global / replicas);
  while (global / replicas % micro_batch != 0) --micro_batch;
  values_->given[key_index("train.micro_batch")] = micro_batch;
}

const std::vector<std::string>& RawConfig::errors() const { return values_->errors; }

}  // namespace ashlar::config
