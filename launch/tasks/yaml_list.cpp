#include "launch/tasks/yaml_list.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar::tasks {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

/// Returns the text without the comment that ends it.
std::string_view uncommented(std::string_view text) {
  if (text.starts_with('#')) return {};
  return trimmed(text.substr(0, text.find(" #")));
}

/// The values of one line.
class LineReader {
 public:
  LineReader(std::string_view text, std::string place) : text_(trimmed(text)), place_(std::move(place)) {}

  /// Takes `NAME:` from the beginning of the line.
  std::string name() {
    const size_t colon = text_.find(':');
    const std::string found(trimmed(text_.substr(0, colon)));
    const bool ends = colon != std::string_view::npos && (colon + 1 == text_.size() || text_[colon + 1] == ' ');
    if (!ends || found.empty() || found.find_first_of("\"' #[]{}") != std::string::npos)
      throw unexpected("expected NAME: VALUE");
    text_ = trimmed(text_.substr(colon + 1));
    return found;
  }

  /// Takes the rest of the line; null if it is of another form than a text or a list of texts.
  nlohmann::json value() {
    if (text_.starts_with('[')) return list();
    if (text_.starts_with('"') || text_.starts_with('\'')) {
      nlohmann::json value = quoted();
      if (!uncommented(trimmed(text_)).empty()) throw unexpected("expected nothing after the closing quote");
      return value;
    }
    const std::string_view plain = uncommented(text_);
    constexpr std::string_view kOtherForms = "&*!|>{%@`?,]}";
    if (plain.empty() || kOtherForms.find(plain.front()) != std::string_view::npos) return nullptr;
    return std::string(plain);
  }

  Error unexpected(std::string_view problem) const {
    return bad_record({.value = nullptr, .place = place_}, str_cat(problem, ", got ", printable(text_)));
  }

 private:
  nlohmann::json list() {
    const size_t end = text_.find(']');
    if (end == std::string_view::npos || !uncommented(trimmed(text_.substr(end + 1))).empty())
      throw unexpected("expected a list in brackets that ends on its line");
    std::string_view rest = text_.substr(1, end - 1);
    nlohmann::json values = nlohmann::json::array();
    while (!trimmed(rest).empty()) {
      const size_t comma = rest.find(',');
      values.push_back(std::string(trimmed(rest.substr(0, comma))));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return values;
  }

  std::string quoted() {
    const char quote = text_.front();
    std::string value;
    size_t at = 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      const bool escape = quote == '"' && text_[at] == '\\' && at + 1 < text_.size();
      value += escape ? escaped(text_[++at]) : text_[at];
    }
    if (at == text_.size()) throw unexpected("expected a text with a closing quote");
    text_ = text_.substr(at + 1);
    if (text_.starts_with(quote)) throw unexpected("expected no doubled quote");
    return value;
  }

  char escaped(char c) const {
    for (const auto& [letter, meaning] : {std::pair('n', '\n'), {'t', '\t'}, {'"', '"'}, {'\\', '\\'}, {'/', '/'}})
      if (c == letter) return meaning;
    throw unexpected("expected no escape but \\n, \\t, \\\", \\\\ and \\/");
  }

  std::string_view text_;
  std::string place_;
};

/// Collects the entries of the list line by line.
class ListReader {
 public:
  explicit ListReader(std::string_view key) : key_(key) {}

  void take(std::string_view line, const std::string& place) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos || line[indent] == '#') return;
    LineReader reader(line, place);
    if (line[indent] == '\t') throw reader.unexpected("expected an indentation of spaces");
    const std::string_view text = trimmed(line);
    const bool dash = text == "-" || text.starts_with("- ");
    if (indent == 0 && !dash && text != "---") return take_key(reader);
    if (!inside_) return;
    if (records_.empty() || indent <= dash_) {
      if (!dash) throw reader.unexpected("expected an entry that begins with -");
      return take_dash(text.substr(1), indent, place);
    }
    if (!names_ && !dash) names_ = indent;
    if (!names_ || indent < *names_) throw reader.unexpected("expected the indentation of the names before");
    if (indent == *names_ && !dash) return take_value(reader);
    *last_ = nullptr;  // what is indented further belongs to the value of the name before it
  }

  bool found() const { return found_; }
  std::vector<Record> records() {
    std::vector<Record> all;
    for (auto& [value, place] : records_) all.push_back(make_record(std::move(value), place));
    return all;
  }

 private:
  void take_key(LineReader& reader) {
    inside_ = reader.name() == key_;
    if (!inside_) return;
    if (found_) throw reader.unexpected(str_cat("expected ", key_, " once"));
    found_ = true;
    if (!reader.value().is_null()) throw reader.unexpected(str_cat("expected a list on the lines after ", key_));
  }

  void take_dash(std::string_view rest, size_t indent, const std::string& place) {
    if (!records_.empty() && indent != dash_)
      throw LineReader(rest, place).unexpected("expected the indentation of the entries before");
    dash_ = indent;
    names_.reset();
    records_.push_back({nlohmann::json::object(), place});
    LineReader reader(rest, place);
    if (uncommented(trimmed(rest)).empty()) return;
    names_ = indent + 1 + rest.find_first_not_of(' ');
    take_value(reader);
  }

  void take_value(LineReader& reader) {
    nlohmann::json& entry = records_.back().first;
    const std::string name = reader.name();
    if (entry.contains(name)) throw reader.unexpected(str_cat("expected ", name, " once"));
    last_ = &(entry[name] = reader.value());
  }

  std::string_view key_;
  bool found_ = false, inside_ = false;
  size_t dash_ = 0;                 ///< indentation of the entries
  std::optional<size_t> names_;     ///< indentation of the names of the entry
  nlohmann::json* last_ = nullptr;  ///< the value of the last name
  std::vector<std::pair<nlohmann::json, std::string>> records_;
};

}  // namespace

std::vector<Record> read_yaml_list(const std::filesystem::path& path, std::string_view key) {
  ListReader list(key);
  size_t number = 0;
  for (const std::string& line : read_lines(path)) list.take(line, place_of(path, "line", ++number));
  if (!list.found())
    throw bad_record({.value = nullptr, .place = printable(path.string())}, str_cat("it has no key ", key));
  return list.records();
}

}  // namespace ashlar::tasks
