#include "tests/quickstart/commands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/shell.h"

namespace ashlar::quickstart {

std::vector<std::string> licence_texts() {
  const std::filesystem::path folder = "/usr/share/common-licenses";
  std::vector<std::string> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_symlink() && entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ashlar(const std::string& arguments) {
  const testing::ShellResult result = testing::run_shell(testing::shell_quote(ASHLAR_BINARY) + " " + arguments);
  EXPECT_EQ(result.code, 0) << "ashlar " << arguments << "\n" << result.out << result.err;
  return result.out;
}

std::vector<nlohmann::json> metrics(const std::filesystem::path& run_dir) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(run_dir / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

double entropy(const std::string& report, const std::string& name) {
  const size_t at = report.find(name);
  const size_t colon = at == std::string::npos ? at : report.find(": ", at);
  if (colon == std::string::npos) return std::numeric_limits<double>::quiet_NaN();
  return std::stod(report.substr(colon + 2));
}

}  // namespace ashlar::quickstart
