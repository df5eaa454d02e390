#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "tests/lint/source_tree.h"

namespace ashlar::lint {
namespace {

// Exit status and the output of a shell command.
std::pair<int, std::string> run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) output.append(buffer.data(), n);
  return {pclose(pipe), output};
}

// Other versions lay out some constructs differently, so only the one that the tree was formatted with can judge it.
TEST(ClangFormat, LeavesTheTreeAsItIs) {
  const auto [status, version] = run("clang-format --version");
  if (status != 0 || version.find("version 14.") == std::string::npos) {
    GTEST_SKIP() << "clang-format 14 is not installed";
  }
  std::string files;
  for (const std::string& path : list_files(ASHLAR_SOURCE_DIR, /*untracked=*/false)) {
    if (is_code(path)) files += " '" + path + "'";
  }
  ASSERT_FALSE(files.empty());
  const auto [failed, report] = run("cd '" ASHLAR_SOURCE_DIR "' && clang-format --dry-run -Werror" + files);
  std::set<std::string> to_mend;
  std::istringstream stream(report);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(": error:") != std::string::npos) to_mend.insert(line.substr(0, line.find(':')));
  }
  std::string names;
  for (const std::string& name : to_mend) names += " " + name;
  EXPECT_EQ(failed, 0) << "fix: clang-format -i" << (names.empty() ? "\n" + report.substr(0, 1000) : names);
}

}  // namespace
}  // namespace ashlar::lint
