#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/base/strings.h"
#include "tests/lint/rules.h"

namespace ashlar::lint {
namespace {

constexpr size_t kMaxReadmeWidth = 120;

/// What stands between backticks in a line.
std::vector<std::string> quoted_words(const std::string& line) {
  std::vector<std::string> words;
  for (size_t begin = line.find('`'); begin != std::string::npos;) {
    const size_t end = line.find('`', begin + 1);
    if (end == std::string::npos) break;
    words.push_back(line.substr(begin + 1, end - begin - 1));
    begin = line.find('`', end + 1);
  }
  return words;
}

/// Whether a README's word (`name`, `name.h`, `name.*`, `a_*_test.cpp`, `folder/`) means the file, given by its path
/// from the README's folder. A header stands for its source.
bool means(const std::string& word, const std::string& file) {
  if (word.ends_with('/')) return file.starts_with(word);
  const std::filesystem::path path(file);
  const std::string pattern = word.ends_with(".h") || word.ends_with(".cpp") ? word.substr(0, word.rfind('.')) : word;
  const auto fits = [&](const std::string& name) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
  return fits(file) || fits(path.filename()) || fits(path.stem());
}

struct Table {
  bool of_files = false;  ///< its first column names what lies in the folder
  bool complete = false;  ///< and all of it
};
Table table_of(const std::string& head) {
  const std::string name = head.substr(2, std::max<size_t>(head.find(" |", 2), 2) - 2);
  const bool complete = name == "file" || name == "files" || name == "source";
  return {.of_files = complete || name == "where" || name == "folder", .complete = complete};
}

void check_readme(const SourceFile& readme, const std::vector<std::string>& files, std::vector<Finding>& findings) {
  std::vector<std::string> said;
  bool complete = false;
  Table table;
  int number = 0;
  std::string before;
  for (size_t begin = 0; begin < readme.text.size();) {
    const size_t end = std::min(readme.text.find('\n', begin), readme.text.size());
    const std::string line = readme.text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::vector<std::string> words = quoted_words(line);
    said.insert(said.end(), words.begin(), words.end());
    const bool row = line.starts_with("| ");
    if (row && !before.starts_with("|")) {
      table = table_of(line);
      complete = complete || table.complete;
    } else if (row && table.of_files) {
      for (const std::string& word : quoted_words(line.substr(0, line.find(" |", 2)))) {
        if (word.find('.') != std::string::npos && !word.ends_with('*') && !is_text(word)) continue;  // not in the tree
        if (std::none_of(files.begin(), files.end(), [&](const std::string& f) { return means(word, f); }))
          findings.push_back(
              {readme.path, number, str_cat("`", word, "` is no file of this folder: rename or remove it")});
      }
    }
    before = line;
  }
  if (!complete) return;
  for (const std::string& file : files) {
    if (file.find('/') != std::string::npos || !is_code(file)) continue;
    if (std::none_of(said.begin(), said.end(), [&](const std::string& word) { return means(word, file); }))
      findings.push_back({readme.path, 0, str_cat("does not name ", file, ": say in its table what that file is")});
  }
}

}  // namespace

std::vector<Finding> readme_width(const SourceFile& file) {
  if (file.path != "README.md" && !file.path.ends_with("/README.md")) return {};
  // The list of every key, which the program writes, and the page of the vectors that other programs made.
  if (file.path == "configs/README.md" || file.path == "tests/reference/golden/README.md") return {};
  std::vector<Finding> findings;
  std::istringstream lines(file.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.size() <= kMaxReadmeWidth) continue;
    findings.push_back({file.path, number,
                        str_cat(line.size(), " characters, at most ", kMaxReadmeWidth,
                                ": wrap the text, or shorten or divide the row of the table")});
  }
  return findings;
}

std::vector<Finding> readme_tables(const std::vector<SourceFile>& tree) {
  std::vector<Finding> findings;
  for (const SourceFile& readme : tree) {
    const std::string folder = folder_of(readme.path);
    if (folder.empty() || !readme.path.ends_with("/README.md")) continue;
    std::vector<std::string> files;
    for (const SourceFile& file : tree)
      if (file.path.starts_with(folder + "/")) files.push_back(file.path.substr(folder.size() + 1));
    check_readme(readme, files, findings);
  }
  return findings;
}

}  // namespace ashlar::lint
