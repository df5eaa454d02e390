#include "tests/lint/source_tree.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace ashlar::lint {

namespace fs = std::filesystem;

namespace {

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return path.ends_with(ending); });
}

// Standard output split at NUL bytes; empty when the command fails.
std::vector<std::string> run_nul_separated(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string output;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  if (pclose(pipe) != 0) return {};
  std::vector<std::string> parts;
  std::istringstream stream(output);
  for (std::string part; std::getline(stream, part, '\0');) parts.push_back(part);
  return parts;
}

std::vector<std::string> ignore_patterns(const fs::path& root) {
  std::vector<std::string> patterns;
  std::ifstream file(root / ".gitignore");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.back() == '/') line.pop_back();
    patterns.push_back(line);
  }
  return patterns;
}

}  // namespace

bool is_header(const std::string& path) { return ends_with_any(path, {".h", ".cuh"}); }
bool is_code(const std::string& path) { return is_header(path) || ends_with_any(path, {".cpp", ".cu"}); }
bool is_text(const std::string& path) {
  return is_code(path) ||
         ends_with_any(path, {".sh", ".sbatch", ".cmake", "CMakeLists.txt", ".toml", ".md", "/budgets.txt"}) ||
         path == "check" || path == "quickstart" || path == ".ci/run";
}

std::vector<std::string> walk_files(const fs::path& root) {
  const std::vector<std::string> patterns = ignore_patterns(root);
  const auto ignored = [&](const std::string& path, const std::string& name) {
    return name == ".git" || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
             const bool rooted = pattern[0] == '/';
             return fnmatch(pattern.c_str() + rooted, rooted ? path.c_str() : name.c_str(), FNM_PATHNAME) == 0;
           });
  };
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    const std::string path = it->path().lexically_relative(root).generic_string();
    if (ignored(path, it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> list_files(const fs::path& root, bool untracked) {
  // An archive unpacked inside somebody else's checkout must not be read as part of it.
  if (!fs::exists(root / ".git")) return walk_files(root);
  // The checkout may belong to another user, which git refuses unless it is told otherwise.
  const std::string command = "git -c safe.directory='*' -C '" + root.string() + "' ls-files -z --cached" +
                              (untracked ? " --others --exclude-standard" : "") + " 2>/dev/null";
  std::vector<std::string> files = run_nul_separated(command);
  if (files.empty()) return walk_files(root);
  std::erase_if(files, [&](const std::string& path) { return !fs::is_regular_file(root / path); });
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::vector<SourceFile> read_tree(const fs::path& root) {
  std::vector<SourceFile> tree;
  for (const std::string& path : list_files(root, /*untracked=*/true)) {
    if (!is_text(path) || path.find("/golden/") != std::string::npos) continue;
    std::ifstream file(root / path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    tree.push_back({.path = path, .text = text.str()});
  }
  return tree;
}

}  // namespace ashlar::lint
