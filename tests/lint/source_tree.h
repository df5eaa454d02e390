#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ashlar::lint {

/// One text file of the project: its path from the root, with '/' between folders, and its bytes.
struct SourceFile {
  std::string path;
  std::string text;
};

/// The project's files as paths from `root`, sorted. In a git checkout: what git tracks and, with `untracked`, what it
/// would not ignore. Elsewhere (an exported archive, or no git on the machine): every file that .gitignore's rooted
/// patterns leave.
std::vector<std::string> list_files(const std::filesystem::path& root, bool untracked);

/// The same list made without git; `list_files` falls back to it. Only patterns of the forms `/name`, `/name/` and
/// `name` are understood, with `*` as the wildcard, which is all that .gitignore uses.
std::vector<std::string> walk_files(const std::filesystem::path& root);

/// Text that people write and the rules read: C++, CUDA, shell, CMake, TOML, Markdown.
bool is_text(const std::string& path);
/// C++ and CUDA files only.
bool is_code(const std::string& path);
bool is_header(const std::string& path);

/// Returns the folder of a file, without a slash at the end; "" for a file of the root.
std::string folder_of(const std::string& path);

/// Every text file of `list_files(root, true)`, golden vectors left out, read whole.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

}  // namespace ashlar::lint
