#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/base/strings.h"
#include "tests/lint/rules.h"

namespace ashlar::lint {

namespace {

constexpr int kMaxLines = 600;
constexpr int kMaxColumns = 120;
constexpr int kMaxReadmeLines = 60;
constexpr int kMaxKeyListLines = 400;
constexpr int kMaxRootReadmeLines = 120;

int count_lines(const std::string& text) {
  const int newlines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  return newlines + (!text.empty() && text.back() != '\n');
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Calls visit(line number, line) for each line that `pattern` is found in.
template <typename Visit>
void for_matches(const std::string& text, const std::regex& pattern, Visit visit) {
  std::istringstream stream(text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) visit(number, match.str());
  }
}

}  // namespace

std::string describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += str_cat(finding.path, ":", finding.line, ": ", finding.text, "\n");
  }
  return text;
}

std::vector<Finding> file_length(const SourceFile& file) {
  const int lines = count_lines(file.text);
  if (lines <= kMaxLines || file.path.ends_with(".md")) return {};
  return {{file.path, lines, str_cat(lines, " lines, at most ", kMaxLines, ": split the file by concept")}};
}

std::vector<Finding> comment_width(const SourceFile& file) {
  static const std::regex pattern("^ *//.*");
  std::vector<Finding> findings;
  if (!is_code(file.path)) return findings;
  for_matches(file.text, pattern, [&](int line, const std::string& comment) {
    if (std::ssize(comment) <= kMaxColumns) return;
    findings.push_back({file.path, line, str_cat("a comment of ", comment.size(), " columns, at most ", kMaxColumns)});
  });
  return findings;
}

std::vector<Finding> listed_views(const SourceFile& file) {
  static const std::regex begins(R"(^struct (\w+) \{)"),
      members(R"(^  (?:ConstView|MutView|DropoutArgs|Update|\w+Shape|\w+Forward) ([^;(]*);)");
  static const std::regex names(R"((\w+)(\{\})?(, |$))"), list(R"(return std::tie\(([^)]*)\);)");
  if (!file.path.starts_with("core/backend/") || !is_header(file.path)) return {};
  std::vector<Finding> findings;
  std::string owner, listed;
  std::vector<std::pair<int, std::string>> views;
  std::istringstream stream(file.text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, begins)) owner = match[1];
    if (std::regex_search(line, match, list)) listed = ", " + match[1].str() + ",";
    if (std::regex_search(line, match, members)) {
      const std::string declared = match[1];
      for (std::sregex_iterator name(declared.begin(), declared.end(), names), end; name != end; ++name)
        views.emplace_back(number, (*name)[1]);
    }
    if (line != "};") continue;
    for (const auto& [at, name] : views) {
      if (listed.find(" " + name + ",") == std::string::npos)
        findings.push_back({file.path, at, str_cat("views() of ", owner, " does not list ", name)});
    }
    views.clear();
    listed.clear();
  }
  return findings;
}

std::vector<Finding> ascii_only(const SourceFile& file) {
  int line = 1;
  for (const char c : file.text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 0x20 && byte < 0x7f) || c == '\t' || c == '\n';
    if (!plain) return {{file.path, line, str_cat("byte ", static_cast<int>(byte), " is not plain ASCII")}};
    line += c == '\n';
  }
  return {};
}

std::vector<Finding> no_leftovers(const SourceFile& file) {
  // Written in halves so that this file keeps its own rule.
  static const std::regex pattern(
      "\\b(TO"
      "DO|FIX"
      "ME|X"
      "XX|HA"
      "CK)\\b|\\bDISAB"
      "LED_|/wo"
      "rk/|/ho"
      "me/[a-z]");
  std::vector<Finding> findings;
  for_matches(file.text, pattern, [&](int line, const std::string& what) {
    findings.push_back({file.path, line, str_cat("leftover '", what, "': finish it, or open an issue")});
  });
  return findings;
}

std::vector<Finding> foreign_text(const SourceFile& file) {
  static const std::set<std::string> writers = {
      "launch/main.cpp",                   // errors and the log
      "launch/uncaught.cpp",               // what nobody catches
      "launch/commands/commands.cpp",      // hands the streams to commands
      "launch/commands/data_command.cpp",  // whether its bar is on a terminal
      "launch/commands/generate.cpp",      // the text of a model is its result
      "launch/commands/mpirun_child.cpp",  // hands on what ranks have written
      "launch/commands/timed_steps.cpp",   // lines of a log
      "launch/watch/fatal_signals.cpp",    // in a crash: no allocation, names of signals alone
      "launch/watch/signals.cpp"           // beside the main thread
  };
  const std::string folder = file.path.substr(0, file.path.find('/'));
  static const std::set<std::string> product = {"core", "kernels", "parallel", "data", "launch"};
  if (!is_code(file.path) || !product.contains(folder)) return {};
  std::vector<Finding> findings;
  const std::string code = blank_non_code(file.text);
  if (!writers.contains(file.path)) {
    static const std::regex terminal(
        R"(\bstd::(cout|cerr|clog)\b|\b(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b|\bperror\()");
    for_matches(code, terminal, [&](int line, const std::string& what) {
      findings.push_back(
          {file.path, line, str_cat(what, ": throw an Error or write to the Log, which escape foreign text")});
    });
  }
  if (file.path != "core/io/json.cpp") {
    static const std::regex parser(R"(\b(json|ordered_json|Json|OrderedJson)::parse\()");
    for_matches(code, parser, [&](int line, const std::string& what) {
      findings.push_back({file.path, line, str_cat(what, ": call io::parse_json, which bounds the depth")});
    });
  }
  return findings;
}

std::vector<Finding> header_hygiene(const SourceFile& file) {
  if (!is_header(file.path)) return {};
  std::vector<Finding> findings;
  const bool per_target = file.path.ends_with("_inl.h");
  if (!per_target && file.text.find("#pragma once\n") == std::string::npos) {
    findings.push_back({file.path, 1, "a header needs #pragma once"});
  }
  for_matches(blank_non_code(file.text), std::regex(R"(^\s*using\s+namespace\b)"), [&](int line, const std::string&) {
    findings.push_back({file.path, line, "no 'using namespace' in a header"});
  });
  return findings;
}

std::vector<Finding> top_level(const std::vector<std::string>& paths) {
  static const std::set<std::string> allowed = {
      "core",      "parallel", "kernels",           "data",       "launch", "tests", "configs", "CMakeLists.txt",
      "README.md", "LICENSE",  "CMakePresets.json", "quickstart", "check"};
  std::vector<Finding> findings;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    const std::string entry = path.substr(0, path.find('/'));
    if (entry[0] == '.' || allowed.contains(entry) || !seen.insert(entry).second) continue;
    findings.push_back({path, 0, str_cat("'", entry, "' is not on the top level's list: put it into a folder")});
  }
  return findings;
}

std::vector<Finding> folder_readmes(const std::vector<SourceFile>& tree) {
  std::map<std::string, std::string> readmes;  // folder -> text
  std::set<std::string> folders;
  for (const SourceFile& file : tree) {
    const std::string folder = parent_of(file.path);
    if (file.path == "README.md" || file.path.ends_with("/README.md")) readmes[folder] = file.text;
    if (!file.path.ends_with(".md") && !folder.empty()) folders.insert(folder);
    if (!folder.empty() && folder[0] != '.') folders.insert(folder.substr(0, folder.find('/')));
  }
  std::vector<Finding> findings;
  for (const std::string& folder : folders) {
    if (folder[0] == '.' || readmes.contains(folder)) continue;
    const bool deep = folder.find('/') != std::string::npos;
    std::string above = folder;
    while (!above.empty() && !readmes.contains(above)) above = parent_of(above);
    const std::string name = folder.substr(above.empty() ? 0 : above.size() + 1) + "/";
    const bool named = !above.empty() && readmes[above].find(name) != std::string::npos;
    if (named) continue;
    findings.push_back({folder, 0,
                        deep ? str_cat("needs a README.md, or '", name, "' in the README.md above it")
                             : std::string("needs a README.md")});
  }
  for (const auto& [folder, text] : readmes) {
    // configs/README.md is the generated list of every key.
    const int limit = folder.empty() ? kMaxRootReadmeLines : folder == "configs" ? kMaxKeyListLines : kMaxReadmeLines;
    const int lines = count_lines(text);
    if (lines <= limit) continue;
    const std::string path = folder.empty() ? "README.md" : folder + "/README.md";
    findings.push_back({path, lines, str_cat(lines, " lines, at most ", limit, ": a README is a screen")});
  }
  return findings;
}

}  // namespace ashlar::lint
