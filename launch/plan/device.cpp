#include "launch/plan/device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/base/nearest.h"
#include "core/io/posix_file.h"
#include "launch/config/toml_text.h"
#include "toml++/toml.h"

namespace ashlar::plan {

namespace {

constexpr const char* kMeasure = "ashlar bench device measures this machine and writes such a file";
constexpr std::string_view kRow = "attention";  // the list of tables

/// Calls visit(section, key, value) for every key of a device, in the order of its file. A section "" is the top.
template <typename D, typename Visit>
void for_each_key(D& d, const Visit& visit) {
  visit("", "title", d.title);
  visit("", "source", d.source);
  visit("", "kind", d.kind);
  visit("", "capacity", d.capacity);
  visit("", "threads", d.threads);
  visit("", "launch_gap", d.launch_gap);
  visit("", "ranks_per_node", d.ranks_per_node);
  const auto rates = [&](const char* section, auto& of) {
    visit(section, "peak", of.peak);
    visit(section, "sustained", of.sustained);
    visit(section, "half_terms", of.half_terms);
    visit(section, "streaming", of.streaming);
  };
  rates("bf16", d.bf16);
  rates("fp32", d.fp32);
  visit("memory", "bandwidth", d.bandwidth);
  visit("memory", "optimizer", d.optimizer);
  const auto link = [&](const char* section, auto& of) {
    visit(section, "bandwidth", of.bandwidth);
    visit(section, "latency", of.latency);
  };
  link("intra", d.intra);
  link("inter", d.inter);
}

/// A device file may lack links: those of a machine measured with one rank, or of a machine alone.
bool is_link(std::string_view section) { return section == "intra" || section == "inter"; }

template <typename Row, typename Visit>
void for_each_key_of_row(Row& row, const Visit& visit) {
  visit("head_dim", row.head_dim);
  visit("tokens", row.tokens);
  visit("forward", row.forward);
  visit("backward", row.backward);
}

/// A file being read. Every failure names file, key, what was expected and what was found.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  [[noreturn]] void fail(const std::string& key, std::string_view expected, const std::string& got) const {
    throw input_error("device", name_, ": ", key, ": expected ", expected, ", got ", got, "; ", kMeasure);
  }
  static std::string shown(const toml::node* node) {
    if (node == nullptr) return "nothing";
    std::ostringstream os;
    node->visit([&](const auto& value) { os << value; });
    return escaped(os.str());
  }

  void read(const std::string& key, const toml::node* node, std::string& value) const {
    const auto text = node == nullptr ? std::nullopt : node->value_exact<std::string>();
    if (!text || text->empty()) fail(key, "a text", shown(node));
    value = *text;
  }
  void read(const std::string& key, const toml::node* node, DeviceKind& value) const {
    const auto text = node == nullptr ? std::nullopt : node->value_exact<std::string>();
    if (!text || !parse_enum(*text, value)) fail(key, "\"cpu\" or \"cuda\"", shown(node));
  }
  void read(const std::string& key, const toml::node* node, int64_t& value) const {
    const auto number = node == nullptr ? std::nullopt : node->value_exact<int64_t>();
    if (!number || *number < 1) fail(key, "a whole number above 0", shown(node));
    value = *number;
  }
  void read(const std::string& key, const toml::node* node, double& value) const {
    const auto number = node == nullptr || !node->is_number() ? std::nullopt : node->value<double>();
    if (!number || !std::isfinite(*number) || *number < 0) fail(key, "a number of 0 or more", shown(node));
    value = *number;
  }

  /// Fails if `table` has a key outside `known`.
  void expect_known(const toml::table& table, const std::string& section, const std::set<std::string>& known) const {
    for (const auto& [key, node] : table) {
      if (known.contains(std::string(key.str()))) continue;
      const std::string nearest = nearest_word(key.str(), std::vector<std::string>(known.begin(), known.end()));
      fail(section + escaped(key.str()),
           nearest.empty() ? "no such key" : str_cat("no such key (did you mean ", nearest, "?)"), shown(&node));
    }
  }

 private:
  const std::string& name_;
};

void read_attention(const toml::table& root, const Reader& reader, Device& device) {
  const toml::array* const rows = root[kRow].as_array();
  if (rows == nullptr) reader.fail(std::string(kRow), "tables [[attention]]", Reader::shown(root.get(kRow)));
  for (size_t i = 0; i < rows->size(); ++i) {
    const std::string place = str_cat(kRow, "[", i, "].");
    const toml::table* const table = (*rows)[i].as_table();
    if (table == nullptr) reader.fail(place, "a table", Reader::shown(rows->get(i)));
    std::string dtype;
    reader.read(place + "dtype", table->get("dtype"), dtype);
    if (dtype != "bf16" && dtype != "fp32") reader.fail(place + "dtype", "\"bf16\" or \"fp32\"", printable(dtype));
    AttentionRates row;
    std::set<std::string> known = {"dtype"};
    for_each_key_of_row(row, [&](const char* key, auto& value) {
      reader.read(place + key, table->get(key), value);
      known.insert(key);
    });
    reader.expect_known(*table, place, known);
    if (row.forward <= 0 || row.backward <= 0) reader.fail(place + "forward", "rates above 0", "0");
    (dtype == "bf16" ? device.attention_bf16 : device.attention_fp32).push_back(row);
  }
  if (device.attention_bf16.empty() || device.attention_fp32.empty())
    reader.fail(std::string(kRow), "rows of bf16 and of fp32", str_cat(rows->size(), " rows of one of them"));
  const auto by_shape = [](const AttentionRates& a, const AttentionRates& b) {
    return std::pair(a.head_dim, a.tokens) < std::pair(b.head_dim, b.tokens);
  };
  std::ranges::sort(device.attention_bf16, by_shape);
  std::ranges::sort(device.attention_fp32, by_shape);
}

/// The rates by which times are divided must be above 0.
void check_rates(const Reader& reader, const Device& d) {
  const std::pair<const char*, double> rates[] = {
      {"bf16.peak", d.bf16.peak},        {"bf16.sustained", d.bf16.sustained}, {"bf16.streaming", d.bf16.streaming},
      {"fp32.peak", d.fp32.peak},        {"fp32.sustained", d.fp32.sustained}, {"fp32.streaming", d.fp32.streaming},
      {"memory.bandwidth", d.bandwidth}, {"memory.optimizer", d.optimizer}};
  for (const auto& [key, rate] : rates)
    if (rate <= 0) reader.fail(key, "a rate above 0", "0");
}

std::string toml_value(const std::string& text) {
  std::ostringstream os;
  os << toml::value<std::string>(text);
  return os.str();
}
std::string toml_value(DeviceKind kind) { return str_cat("\"", name_of(kind), "\""); }
std::string toml_value(int64_t number) { return std::to_string(number); }
std::string toml_value(double number) {
  const std::string text = absl::StrFormat("%.6g", number);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

AttentionRates attention_rates(std::span<const AttentionRates> rows, int64_t head_dim, int64_t tokens) {
  ASHLAR_CHECK(!rows.empty());
  const auto distance = [&](const AttentionRates& row) {
    return std::abs(std::log2(static_cast<double>(row.head_dim) / static_cast<double>(head_dim)));
  };
  const int64_t width = std::ranges::min_element(rows, {}, distance)->head_dim;
  const AttentionRates *below = nullptr, *above = nullptr;
  for (const AttentionRates& row : rows) {
    if (row.head_dim != width) continue;
    if (row.tokens <= tokens && (below == nullptr || row.tokens > below->tokens)) below = &row;
    if (row.tokens >= tokens && (above == nullptr || row.tokens < above->tokens)) above = &row;
  }
  if (below == nullptr) below = above;
  if (above == nullptr) above = below;
  AttentionRates rates{.head_dim = head_dim, .tokens = tokens, .forward = below->forward, .backward = below->backward};
  if (above->tokens > below->tokens) {
    const double share = std::log(static_cast<double>(tokens) / static_cast<double>(below->tokens)) /
                         std::log(static_cast<double>(above->tokens) / static_cast<double>(below->tokens));
    rates.forward += share * (above->forward - below->forward);
    rates.backward += share * (above->backward - below->backward);
  }
  return rates;
}

Device parse_device(const std::string& text, const std::string& name) {
  const Reader reader(name);
  if (const std::optional<size_t> line = config::too_deep(text))
    reader.fail(str_cat("line ", *line + 1), "tables of one level", "deeper nesting");
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    reader.fail(str_cat("line ", error.source().begin.line), "TOML", std::string(error.description()));
  }
  Device device;
  device.name = name;
  std::set<std::string> top = {std::string(kRow)};
  std::map<std::string, std::set<std::string>> sections;
  for_each_key(device, [&](const std::string& section, const std::string& key, auto& value) {
    const bool inside = !section.empty();
    top.insert(inside ? section : key);
    if (inside) sections[section].insert(key);
    if (is_link(section) && !root.contains(section)) return;
    const toml::table* const table = inside ? root[section].as_table() : &root;
    reader.read(inside ? str_cat(section, ".", key) : key, table == nullptr ? nullptr : table->get(key), value);
  });
  reader.expect_known(root, "", top);
  for (const auto& [section, keys] : sections)
    if (const toml::table* const table = root[section].as_table()) reader.expect_known(*table, section + ".", keys);
  check_rates(reader, device);
  read_attention(root, reader, device);
  return device;
}

std::string to_toml(const Device& device) {
  std::string text, open;
  for_each_key(device, [&](const std::string& section, const std::string& key, const auto& value) {
    if (is_link(section) && (section == "inter" ? device.inter : device.intra).bandwidth <= 0) return;
    if (section != open) text += str_cat("\n[", section, "]\n");
    open = section;
    text += str_cat(key, " = ", toml_value(value), "\n");
  });
  for (const auto& [dtype, rows] : {std::pair("bf16", &device.attention_bf16), {"fp32", &device.attention_fp32}}) {
    for (const AttentionRates& row : *rows) {
      text += str_cat("\n[[", kRow, "]]\ndtype = \"", dtype, "\"\n");
      for_each_key_of_row(
          row, [&](const char* key, const auto& value) { text += str_cat(key, " = ", toml_value(value), "\n"); });
    }
  }
  return text;
}

Device device_named(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".toml"))
    return parse_device(io::read_text_file(name), name);
  std::vector<std::string> names;
  for (const DeviceText& text : device_texts()) {
    if (text.name == name) return parse_device(std::string(text.toml), name);
    names.emplace_back(text.name);
  }
  throw input_error("device", "expected a built-in device or the path of a file, got ", printable(name),
                    "; built-in: ", comma_list(device_texts(), &DeviceText::name), "; ", kMeasure);
}

std::string measured_device_path() {
  const auto folder = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = folder("XDG_CACHE_HOME"); !cache.empty()) return cache + "/ashlar/device.toml";
  if (const std::string home = folder("HOME"); !home.empty()) return home + "/.cache/ashlar/device.toml";
  return "";
}

Device device_or_measured(const std::optional<std::string>& name) {
  if (name) return device_named(*name);
  const std::string path = measured_device_path();
  if (path.empty() || !std::filesystem::exists(path))
    throw input_error("device", "expected the rates of this machine in ",
                      path.empty() ? "$XDG_CACHE_HOME/ashlar/device.toml" : path,
                      ", got no such file; run ashlar bench device once, or give --device NAME: ",
                      comma_list(device_texts(), &DeviceText::name));
  return device_named(path);
}

}  // namespace ashlar::plan
