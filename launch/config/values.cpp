#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/base/utf8.h"
#include "core/io/posix_file.h"
#include "launch/config/raw_values.h"

namespace ashlar::config {
namespace {

std::string number_text(double v) {
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  if (std::isfinite(v) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quote(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool in_range(const KeySpec& s, double v) {
  return (s.low_open ? v > s.low : v >= s.low) && (s.high_open ? v < s.high : v <= s.high);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const int bytes = next_code_point(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

/// Returns the error for a path that is not UTF-8. File names may contain any bytes, but TOML files, manifests and
/// metrics must be UTF-8.
std::string not_utf8(std::string_view key, std::string_view text, std::string_view place) {
  return str_cat(key, " = ", printable(text), ": expected UTF-8, which config.toml and checkpoints require, got other ",
                 "bytes; rename the file or directory, or give a symbolic link to it (", place, ")");
}

bool has_word(const std::vector<std::string_view>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

RawValues::RawValues(std::string file_name)
    : name(std::move(file_name)), given(schema().size()), bad(schema().size(), 0), overridden(schema().size(), 0) {}

std::string RawValues::run_dir() const {
  if (const auto dir = get<std::string>("run.dir")) return *dir;
  if (bad[key_index("run.dir")] != 0) return "";
  const std::string stem = std::filesystem::path(name).stem().string();
  return str_cat("runs/", stem.empty() ? "run" : stem);
}

Value fallback_value(const KeySpec& s) {
  const std::string_view text = s.fallback;
  switch (s.type) {
    case KeyType::kInt:
      if (const auto whole = parse_number<int64_t>(text)) return *whole;
      break;
    case KeyType::kNumber:
      if (const auto real = parse_number<double>(text)) return *real;
      break;
    case KeyType::kNumberOrWord:
      if (const auto real = parse_number<double>(text)) return *real;
      return std::string(text);
    case KeyType::kBool: return text == "true";
    case KeyType::kString:
    case KeyType::kWord: return std::string(text);
    case KeyType::kIntList:  // all list defaults in the schema have one element
      if (text.size() < 2) break;
      if (const auto whole = parse_number<int64_t>(text.substr(1, text.size() - 2)))
        return std::vector<int64_t>{*whole};
      break;
    case KeyType::kNumberList:
    case KeyType::kKeyList:
    case KeyType::kNameList:
    case KeyType::kSources: break;
  }
  throw Bug(str_cat("schema default of ", s.name(), " does not parse"));
}

bool same_value(const Value& a, const Value& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return std::abs(*x - *y) <= 1e-12 * std::abs(*y);
}

std::string value_text(const Value& value) {
  const auto list = [](const auto& items, const auto& text_of) {
    return str_cat("[", comma_list(items, text_of), "]");
  };
  if (const auto* v = std::get_if<int64_t>(&value)) return str_cat(*v);
  if (const auto* v = std::get_if<double>(&value)) return number_text(*v);
  if (const auto* v = std::get_if<bool>(&value)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<std::string>(&value)) return quote(*v);
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) return list(*v, std::identity());
  if (const auto* v = std::get_if<std::vector<double>>(&value)) return list(*v, number_text);
  if (const auto* v = std::get_if<std::vector<std::string>>(&value)) return list(*v, quote);
  const auto& sources = std::get<std::vector<DataSource>>(value);
  if (sources.size() == 1 && sources[0].weight == 1) return quote(sources[0].path);
  return list(sources, [](const DataSource& s) {
    return str_cat("{path = ", quote(s.path), ", weight = ", number_text(s.weight), "}");
  });
}

std::string value_error(const KeySpec& spec, std::string_view got, std::string_view place) {
  return str_cat(spec.name(), " = ", got, ": expected ", expectation(spec), "; e.g. ", example_line(spec), " (", place,
                 ")");
}

std::optional<std::string> check_value(const KeySpec& s, const Value& value, std::string_view place) {
  const auto got = [&] { return escaped(value_text(value), 200); };
  const auto wrong = [&] { return value_error(s, got(), place); };
  const auto refused = [&](std::string_view expected) {
    return str_cat(s.name(), " = ", got(), ": not supported by this version; expected ", expected,
                   *s.instead != '\0' ? "; " : "", s.instead, " (", place, ")");
  };
  const auto all_in_range = [&](const auto& list) {
    return !list.empty() && std::ranges::all_of(list, [&](auto v) { return in_range(s, static_cast<double>(v)); });
  };
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (s.type == KeyType::kString && !text->empty() && !is_utf8(*text)) return not_utf8(s.name(), *text, place);
    if (s.type == KeyType::kString) return text->empty() ? std::optional(wrong()) : std::nullopt;
    if (has_word(split_words(s.unsupported), *text)) return refused(expectation(s));
    if (!has_word(words_of(s), *text)) return wrong();
  } else if (const auto* whole = std::get_if<int64_t>(&value)) {
    if (!in_range(s, static_cast<double>(*whole))) return wrong();
  } else if (const auto* real = std::get_if<double>(&value)) {
    if (!in_range(s, *real)) return wrong();
  } else if (const auto* sources = std::get_if<std::vector<DataSource>>(&value)) {
    for (const DataSource& source : *sources)
      if (!is_utf8(source.path)) return not_utf8(s.name(), source.path, place);
  } else if (const auto* keys = std::get_if<std::vector<std::string>>(&value)) {
    if (keys->empty()) return wrong();
    if (s.type == KeyType::kNameList) {
      for (const std::string& name : *keys) {
        if (name.empty()) return wrong();
        if (!is_utf8(name)) return not_utf8(s.name(), name, place);
      }
      return std::nullopt;
    }
    for (const std::string& key : *keys) {
      const size_t dot = std::min(key.find('.'), key.size());
      const KeySpec* spec = find_key(key.substr(0, dot), key.substr(std::min(dot + 1, key.size())));
      if (spec != nullptr && is_weights_key(*spec)) continue;
      const std::string nearest =
          spec == nullptr ? nearest_key(key.substr(0, dot), key.substr(std::min(dot + 1, key.size()))) : "";
      return str_cat(s.name(), " = ", escaped(quote(key)), ": expected names of model keys, e.g. ",
                     nearest.empty() ? "rope.base" : nearest, " (", place, ")");
    }
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    if (!all_in_range(*list)) return wrong();
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    if (!all_in_range(*numbers)) return wrong();
  }
  return std::nullopt;
}

}  // namespace ashlar::config
